# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sphinx: the guides of this folder and the reference that antsibull-docs makes of the plugins and roles, as one site."""

project = "npu.affinity"
copyright = "npu.affinity contributors"  # noqa: A001 - the name is Sphinx's
extensions = ["myst_parser", "sphinx_antsibull_ext"]
myst_heading_anchors = 3
html_theme = "sphinx_ansible_theme"
html_show_sphinx = False
html_theme_options = {"display_version": False}
default_role = "any"
nitpicky = False
exclude_patterns = ["reference/environment_variables.rst"]
suppress_warnings = ["misc.highlighting_failure", "ref.ref"]  # labels of Ansible's own site; antsibull-docs checks ours
