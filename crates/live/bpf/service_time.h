/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The time of each CPU, by the service for which it executes. Each program ends an interval when it
 * starts, whose time belongs to the service. It ends another interval when it ends, whose time is
 * the program's own. So all intervals of a CPU add up to its window, to the nanosecond.
 *
 * An IRQ may come between any two instructions of a program. The IRQ's programs restore `base` and
 * `depth`, and advance `since`. An interval ends by an atomic exchange of `since`, which
 * fails if an IRQ came after the clock was read. Additions to sums are atomic too. Therefore no
 * nanosecond is counted twice or lost.
 *
 * `since` also says whether a program runs. So an IRQ that interrupts a program is known as one: it
 * is outside of the latency of the service, and no nested time of it.
 */
#ifndef IRQLAB_SERVICE_TIME_H
#define IRQLAB_SERVICE_TIME_H

/* Largest number of clock readings, if IRQs come during the readings. */
#define CLOCK_READINGS_MAX 3

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SERVICE_ROWS);
	__type(key, u32);
	__type(value, struct service_row);
} rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct service_rows);
} row_table SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct service_cpu);
} cpus SEC(".maps");

static __always_inline struct service_cpu *this_cpu(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&cpus, &zero);
}

/* Returns this CPU's state, if its window is open. */
static __always_inline struct service_cpu *armed_cpu(void)
{
	struct service_cpu *cpu = this_cpu();

	return cpu && *(volatile u64 *)&cpu->since ? cpu : 0;
}

static __always_inline void lose(void)
{
	u32 zero = 0;
	struct service_rows *table = bpf_map_lookup_elem(&row_table, &zero);

	if (table)
		table->lost++;
}

static __noinline struct service_row *row_of(u32 service)
{
	u32 zero = 0, row, earlier;
	struct service_rows *table = bpf_map_lookup_elem(&row_table, &zero);

	if (!table || service >= SERVICES)
		return 0;
	row = table->row_of[service];
	if (!row) {
		/* Refused claims are not added on, or the sum would wrap to rows in use. */
		if (table->used >= SERVICE_ROWS) {
			table->lost++;
			return 0;
		}
		/*
		 * Atomic, because an interrupt's probe may claim a row in between,
		 * also for the same service.
		 */
		row = __sync_fetch_and_add(&table->used, 1) + 1;
		if (row >= SERVICE_ROWS) {
			table->lost++;
			return 0;
		}
		earlier = __sync_val_compare_and_swap(&table->row_of[service], 0, row);
		if (earlier)
			row = earlier;
	}
	return bpf_map_lookup_elem(&rows, &row);
}

/*
 * Returns a place on the stack. Opaque to the compiler, which would drop the bound
 * that the verifier needs.
 */
static __always_inline struct service_span *span_at(struct service_cpu *cpu, u64 depth)
{
	asm volatile("%0 &= %1" : "+r"(depth) : "i"(DEPTH_MAX - 1));
	return &cpu->spans[depth];
}

/* Returns the service for which this CPU executes. */
static __always_inline u32 service_of(struct service_cpu *cpu)
{
	u32 depth = cpu->depth;

	return depth ? span_at(cpu, depth - 1)->service : cpu->base;
}

static __always_inline void add_self(struct service_cpu *cpu, u64 length_ns)
{
	struct service_row *row = row_of(service_of(cpu));

	if (row)
		__sync_fetch_and_add(&row->self_ns, length_ns);
	else
		__sync_fetch_and_add(&cpu->unplaced_ns, length_ns);
}

/* The flag of `since` while one of these programs runs. */
#define IN_PROGRAM 1

static __always_inline u64 since_of(u64 start_ns, u64 in_program)
{
	return start_ns << 1 | in_program;
}

/* Adds the interval from `since` to a time to its sum. */
static __always_inline void add_interval(struct service_cpu *cpu, u64 since, u64 end_ns)
{
	u64 length_ns = end_ns - (since >> 1);

	if (since & IN_PROGRAM)
		__sync_fetch_and_add(&cpu->probes_ns, length_ns);
	else
		add_self(cpu, length_ns);
}

/*
 * Ends the interval and returns the time. Stores the interval's `since`, which is 0 if no interval has ended: the
 * window has closed, or IRQs came at each try. In the latter case the interval continues until the next program.
 */
static __always_inline u64 end_interval(struct service_cpu *cpu, u64 next_in_program, u64 *ended)
{
	u64 now_ns = 0, since;
	u32 reading;

	*ended = 0;
#pragma unroll
	for (reading = 0; reading < CLOCK_READINGS_MAX; reading++) {
		since = *(volatile u64 *)&cpu->since;
		now_ns = bpf_ktime_get_ns();
		if (!since)
			break;
		if (__sync_val_compare_and_swap(&cpu->since, since,
						since_of(now_ns, next_in_program)) == since) {
			*ended = since;
			break;
		}
	}
	return now_ns;
}

/*
 * Called at a program's start: the time until now belongs to the service, or to the program that an IRQ has
 * interrupted. Returns the time. `interrupted` tells the two apart for program_ends: IN_PROGRAM or 0.
 */
static __always_inline u64 program_starts(struct service_cpu *cpu, u64 *interrupted)
{
	u64 ended, now_ns = end_interval(cpu, IN_PROGRAM, &ended);

	*interrupted = ended & IN_PROGRAM;
	if (ended)
		add_interval(cpu, ended, now_ns);
	return now_ns;
}

/* Called at a program's end: the time since its start is its own. Returns the time. */
static __always_inline u64 program_ends(struct service_cpu *cpu, u64 interrupted)
{
	u64 ended, now_ns = end_interval(cpu, interrupted, &ended);

	if (ended)
		__sync_fetch_and_add(&cpu->probes_ns, now_ns - (ended >> 1));
	else if (!interrupted)
		__sync_fetch_and_and(&cpu->since, ~(u64)IN_PROGRAM);
	return now_ns;
}

#endif
