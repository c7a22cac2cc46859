// SPDX-License-Identifier: GPL-2.0
/*
 * davinci_mock - makes a plain PCI device of a lab guest look like an NPU.
 *
 * The lab's QEMU gives the guest one virtio-serial device per NPU, with more
 * MSI-X vectors than an NPU driver requests.  The guest's davinci-mock-bind
 * script hands these devices to this driver with driver_override.  The driver
 *  - shows vendor/device/class of an NPU in sysfs (and so in lspci),
 *  - requests 18 real interrupts under the names the real driver uses,
 *  - creates an unbound workqueue visible in sysfs, its rescuer thread and one
 *    kernel thread per device,
 *  - creates the device nodes /dev/davinciN and the three manager nodes.
 * None of the interrupts ever fires; the point is that they can be moved.
 *
 * Its parameters, which can also be changed while it is loaded and then go for
 * the devices bound from then on, make the kernel behave in ways that an NPU's
 * driver is free to cause: other interrupt numbers, interrupts requested late,
 * interrupts that the kernel places itself, CPUs without free vectors.
 */
#include <linux/idr.h>
#include <linux/interrupt.h>
#include <linux/kthread.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/workqueue.h>

#define NAMED_VECTORS 18	/* 1 mailbox, 1 send queue, 16 completion queues */
#define MAX_VECTORS 128
#define NPU_VENDOR 0x19e5
#define NPU_CLASS 0x120000	/* processing accelerator */

static ushort device_id = 0xd802;
module_param(device_id, ushort, 0444);
MODULE_PARM_DESC(device_id, "PCI device id to show: 0xd802 (A2) or 0xd803 (A3)");

static uint vectors = MAX_VECTORS;
module_param(vectors, uint, 0644);
MODULE_PARM_DESC(vectors, "vectors to allocate, at least 18; as many as there are at most");

static bool managed;
module_param(managed, bool, 0644);
MODULE_PARM_DESC(managed, "let the kernel place the completion queues' interrupts itself");

static bool spares;
module_param(spares, bool, 0644);
MODULE_PARM_DESC(spares, "request the vectors beyond the first 18 as well");

static bool late;
module_param(late, bool, 0644);
MODULE_PARM_DESC(late, "request all but the mailbox's interrupt when the device's request_irqs is written to");

struct mock {
	int id;
	int allocated;
	int requested;
	struct pci_dev *pdev;
	struct workqueue_struct *wq;
	struct task_struct *task;
	struct miscdevice node;
	char node_name[16];
	char mailbox_name[24];
	u16 vendor, device;
	u32 class;
};

static DEFINE_IDA(ids);

static const struct file_operations node_fops = { .owner = THIS_MODULE };

static struct miscdevice managers[] = {
	{ .minor = MISC_DYNAMIC_MINOR, .name = "davinci_manager", .fops = &node_fops },
	{ .minor = MISC_DYNAMIC_MINOR, .name = "devmm_svm", .fops = &node_fops },
	{ .minor = MISC_DYNAMIC_MINOR, .name = "hisi_hdc", .fops = &node_fops },
};

static irqreturn_t handler(int irq, void *data)
{
	return IRQ_HANDLED;
}

static int idle_thread(void *data)
{
	while (!kthread_should_stop())
		schedule_timeout_interruptible(HZ);
	return 0;
}

static void free_irqs(struct mock *m)
{
	while (m->requested > 0)
		free_irq(pci_irq_vector(m->pdev, --m->requested), m);
	pci_free_irq_vectors(m->pdev);
}

static const char *irq_name(struct mock *m, int i)
{
	if (i == 0)
		return m->mailbox_name;
	if (i == 1)
		return "sq_send_trigger_irq";
	return i < NAMED_VECTORS ? "cq_update_irq" : "spare_irq";
}

/* Requests the vectors up to the given one. */
static int request_irqs(struct mock *m, int end)
{
	while (m->requested < end) {
		int i = m->requested;
		int err = request_irq(pci_irq_vector(m->pdev, i), handler, 0, irq_name(m, i), m);

		if (err)
			return err;
		m->requested++;
	}
	return 0;
}

static ssize_t request_irqs_store(struct device *dev, struct device_attribute *attr,
				  const char *buf, size_t count)
{
	int err = request_irqs(dev_get_drvdata(dev), NAMED_VECTORS);

	return err ? err : count;
}
static DEVICE_ATTR_WO(request_irqs);

static int allocate_irqs(struct mock *m)
{
	struct irq_affinity unmanaged_first = { .pre_vectors = 2 };
	unsigned int wanted = clamp_t(unsigned int, vectors, NAMED_VECTORS, MAX_VECTORS);
	unsigned int flags = PCI_IRQ_MSIX | (managed ? PCI_IRQ_AFFINITY : 0);
	int err;

	m->allocated = pci_alloc_irq_vectors_affinity(m->pdev, NAMED_VECTORS, wanted, flags,
						      managed ? &unmanaged_first : NULL);
	if (m->allocated < 0)
		return m->allocated;
	err = request_irqs(m, late ? 1 : spares ? m->allocated : NAMED_VECTORS);
	if (err)
		free_irqs(m);
	return err;
}

static void set_identity(struct pci_dev *pdev, u16 vendor, u16 device, u32 class)
{
	pdev->vendor = vendor;
	pdev->device = device;
	pdev->class = class;
}

static int mock_probe(struct pci_dev *pdev, const struct pci_device_id *unused)
{
	struct mock *m = devm_kzalloc(&pdev->dev, sizeof(*m), GFP_KERNEL);
	int err;

	if (!m)
		return -ENOMEM;
	err = pcim_enable_device(pdev);
	if (err)
		return err;
	pci_set_master(pdev);

	m->pdev = pdev;
	m->id = ida_alloc(&ids, GFP_KERNEL);
	if (m->id < 0)
		return m->id;
	snprintf(m->mailbox_name, sizeof(m->mailbox_name), "trs-mbox-%d-0", m->id);
	err = allocate_irqs(m);
	if (err)
		goto free_id;

	/* WQ_MEM_RECLAIM: gives the queue a rescuer thread of the same name */
	m->wq = alloc_workqueue("dev%d_sq_send_wq", WQ_UNBOUND | WQ_SYSFS | WQ_HIGHPRI |
				WQ_MEM_RECLAIM, 0, m->id);
	if (!m->wq) {
		err = -ENOMEM;
		goto free_irq;
	}
	m->task = kthread_run(idle_thread, NULL, "dev%d_sq_task", m->id);
	if (IS_ERR(m->task)) {
		err = PTR_ERR(m->task);
		goto free_wq;
	}
	snprintf(m->node_name, sizeof(m->node_name), "davinci%d", m->id);
	m->node.minor = MISC_DYNAMIC_MINOR;
	m->node.name = m->node_name;
	m->node.fops = &node_fops;
	m->node.parent = &pdev->dev;	/* <device>/misc/davinciN tells the number */
	err = misc_register(&m->node);
	if (err)
		goto stop_task;

	m->vendor = pdev->vendor;
	m->device = pdev->device;
	m->class = pdev->class;
	set_identity(pdev, NPU_VENDOR, device_id, NPU_CLASS);
	pci_set_drvdata(pdev, m);
	/* not by dev_groups: struct pci_driver has none before 5.12 */
	err = device_create_file(&pdev->dev, &dev_attr_request_irqs);
	if (err)
		goto deregister;
	dev_info(&pdev->dev, "davinci%d: %d vectors\n", m->id, m->allocated);
	return 0;

deregister:
	set_identity(pdev, m->vendor, m->device, m->class);
	misc_deregister(&m->node);
stop_task:
	kthread_stop(m->task);
free_wq:
	destroy_workqueue(m->wq);
free_irq:
	free_irqs(m);
free_id:
	ida_free(&ids, m->id);
	return err;
}

static void mock_remove(struct pci_dev *pdev)
{
	struct mock *m = pci_get_drvdata(pdev);

	device_remove_file(&pdev->dev, &dev_attr_request_irqs);
	set_identity(pdev, m->vendor, m->device, m->class);
	misc_deregister(&m->node);
	kthread_stop(m->task);
	destroy_workqueue(m->wq);
	free_irqs(m);
	ida_free(&ids, m->id);
}

/* No id table: devices come by driver_override only. */
static struct pci_driver mock_driver = {
	.name = "davinci_mock",
	.probe = mock_probe,
	.remove = mock_remove,
};

static int __init mock_init(void)
{
	int i, err;

	for (i = 0; i < ARRAY_SIZE(managers); i++) {
		err = misc_register(&managers[i]);
		if (err)
			goto undo;
	}
	err = pci_register_driver(&mock_driver);
	if (!err)
		return 0;
undo:
	while (i-- > 0)
		misc_deregister(&managers[i]);
	return err;
}

static void __exit mock_exit(void)
{
	int i;

	pci_unregister_driver(&mock_driver);
	for (i = 0; i < ARRAY_SIZE(managers); i++)
		misc_deregister(&managers[i]);
}

module_init(mock_init);
module_exit(mock_exit);
MODULE_DESCRIPTION("Stand-in for an NPU driver, for tests in a lab guest");
MODULE_LICENSE("GPL");
