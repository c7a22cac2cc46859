# Copyright (c) 2026 npu.affinity contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fleet as one HTML page: ``_records`` reads the hosts, ``_views`` what the kernel has, ``_page`` puts data, style and script together.

This module is private to the collection.
"""
