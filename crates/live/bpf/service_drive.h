/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* A program that tests run: it calls the others' functions as the kernel would. No bench loads it. */
#ifndef IRQLAB_SERVICE_DRIVE_H
#define IRQLAB_SERVICE_DRIVE_H

/* Operations. */
#define INTERRUPT_PROGRAM 1
#define INTERRUPT_TASK 2
#define FAULT 3
#define FIND_SERVICE 4 /* of the current task, if its process had the number ctx[1] */

/* Results: by how much a time of the current request has grown, ns. */
#define NESTED 0
#define SELF 1
#define EXCESS 2 /* nested and self time, less the time that has passed */

/* The times of the current request. */
struct driven {
	u64 nested_ns;
	u64 self_ns;
	u64 since_ns;
};

static __always_inline void read_driven(struct service_cpu *cpu, u64 *nested, struct driven *driven)
{
	struct service_row *row = row_of(cpu->base);

	driven->nested_ns = *nested;
	driven->self_ns = row ? row->self_ns : 0;
	driven->since_ns = cpu->since >> 1;
}

static __always_inline int growth(struct driven *before, struct driven *after, u64 result)
{
	u64 nested_ns = after->nested_ns - before->nested_ns, self_ns = after->self_ns - before->self_ns;

	if (result == NESTED)
		return nested_ns;
	if (result == SELF)
		return self_ns;
	return nested_ns + self_ns - (after->since_ns - before->since_ns);
}

/*
 * Executes the operation ctx[0] in the current system call. Returns the result ctx[1], or -1 without a window or the
 * task's state.
 */
SEC("?raw_tp") int drive(u64 *ctx)
{
	struct service_cpu *cpu = armed_cpu();
	struct service_task *task = current_task();
	struct driven before, after;
	u64 operation = ctx[0], result = ctx[1], interrupted;

	if (!cpu || !task)
		return -1;
	if (operation == FIND_SERVICE)
		return service_of_any(bpf_get_current_task_btf(), (u32)bpf_get_current_pid_tgid(), ctx[1], 0);
	program_starts(cpu, &interrupted);
	if (operation == INTERRUPT_PROGRAM) {
		read_driven(cpu, &task->call.nested_ns, &before);
		span_in(SERVICE_IRQ);
		span_out(SERVICE_IRQ);
		read_driven(cpu, &task->call.nested_ns, &after);
		program_ends(cpu, interrupted);
		return growth(&before, &after, result);
	}
	program_ends(cpu, interrupted);
	read_driven(cpu, &task->call.nested_ns, &before);
	if (operation == INTERRUPT_TASK) {
		span_in(SERVICE_IRQ);
		span_out(SERVICE_IRQ);
	} else if (operation == FAULT) {
		fault_in(SERVICE_FAULT_KERNEL);
		fault_out();
	}
	program_starts(cpu, &interrupted);
	read_driven(cpu, &task->call.nested_ns, &after);
	program_ends(cpu, interrupted);
	return growth(&before, &after, result);
}

#endif
