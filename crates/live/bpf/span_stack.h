/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The span stack of a CPU, as in crates/attribution/src/stack.rs; a test compares the two.
 *
 * Softirq probes run with interrupts on, so a hard IRQ may come at any of their instructions. The
 * probes of that IRQ restore the stack, and charge the innermost open span. So a program claims a
 * frame (depth) before it fills it, and reads a frame before it releases it. A clock reading counts
 * only if no IRQ came between the reading and its sums; otherwise the program reads the clock
 * again. A later IRQ belongs to the enclosing span.
 */
#ifndef IRQLAB_SPAN_STACK_H
#define IRQLAB_SPAN_STACK_H

#include "distribution.h"
#include "pmu.h"
#include "rows.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_state);
} cpu_states SEC(".maps");

static __always_inline struct cpu_state *armed_cpu(void)
{
	u32 zero = 0;
	struct cpu_state *cpu = bpf_map_lookup_elem(&cpu_states, &zero);

	return cpu && cpu->armed == cfg.set ? cpu : 0;
}

/* Largest number of clock readings, if IRQs come during the readings. */
#define CLOCK_READINGS_MAX 3

/*
 * Takes a frame for a span, which has not started yet (start_ns is 0). Returns 0 if the stack is
 * full.
 */
static __always_inline struct frame *claim_frame(struct cpu_state *cpu, u32 key, u32 *position)
{
	u32 depth = cpu->depth;
	struct frame *frame;

	if (depth >= DEPTH_MAX) {
		cpu->overflows++;
		return 0;
	}
	cpu->depth = depth + 1;
	barrier();
	*position = depth & (DEPTH_MAX - 1);
	frame = &cpu->frames[*position];
	frame->nested_ns = 0;
	frame->probes_ns = 0;
	frame->descendants = 0;
	frame->start_ns = 0;
	barrier();
	frame->key = key;
	return frame;
}

/* Whether an IRQ has come since the frame was claimed, or since the last start. */
static __always_inline bool was_interrupted(struct frame *frame)
{
	return frame->nested_ns | frame->descendants;
}

/*
 * Starts the span of a claimed frame, at the clock's time or at `fixed_ns`. Earlier IRQs
 * belong to the enclosing span.
 */
static __always_inline void start_span(struct cpu_state *cpu, struct frame *frame, u32 position,
				       u64 fixed_ns)
{
	if (was_interrupted(frame)) {
		if (position) {
			struct frame *parent = &cpu->frames[(position - 1) & (DEPTH_MAX - 1)];

			parent->nested_ns += frame->nested_ns;
			parent->probes_ns += frame->probes_ns;
			parent->descendants += frame->descendants;
		}
		frame->nested_ns = 0;
		frame->probes_ns = 0;
		frame->descendants = 0;
		barrier();
	}
	frame->start_ns = fixed_ns ? fixed_ns : bpf_ktime_get_ns();
	barrier();
}

/* Notes in the parent that a span started in it. */
static __always_inline void note_interruption(struct cpu_state *cpu, u32 position, u64 start_ns)
{
	if (position)
		cpu->frames[(position - 1) & (DEPTH_MAX - 1)].interrupted_ns = start_ns;
}

/*
 * Opens the span of a claimed frame. `now_ns` is an earlier clock reading by this
 * program, if there is one. Reads the clock last, to keep this work out of the span.
 * `fixed_ns` replaces that reading.
 */
static __always_inline void open_claimed(struct cpu_state *cpu, struct frame *frame, u32 position,
					 u64 now_ns, u64 fixed_ns)
{
	u32 reading;

	read_events_at_entry(position);
	if (now_ns)
		note_interruption(cpu, position, now_ns);
	for (reading = 0; reading < CLOCK_READINGS_MAX; reading++) {
		start_span(cpu, frame, position, fixed_ns);
		if (!was_interrupted(frame))
			break;
	}
	if (!now_ns)
		note_interruption(cpu, position, frame->start_ns);
}

/* Claims a frame and opens its span in the same program. */
static __always_inline void open_span(struct cpu_state *cpu, u32 key, u64 fixed_ns)
{
	u32 position;
	struct frame *frame = claim_frame(cpu, key, &position);

	if (frame)
		open_claimed(cpu, frame, position, 0, fixed_ns);
}

/* Counts the span in a frame as abandoned. Not static: see unwind_to. */
__noinline int abandon(struct cpu_state *cpu, u32 position)
{
	struct row *row;

	if (!cpu)
		return 0;
	row = row_of(cpu, cpu->frames[position & (DEPTH_MAX - 1)].key);
	if (row)
		row->abandoned++;
	return 0;
}

/*
 * Finds the open span of `key` below the top, drops the spans above it, and returns its position +
 * 1; 0 if there is none. Spans that closed inside a dropped span are charged to the found span. Not
 * static, so that the verifier checks it separately, and not on each path that leads to it.
 */
__noinline u32 unwind_to(struct cpu_state *cpu, u32 key)
{
	u32 depth, step, position, found = 0;
	u64 nested_ns = 0, probes_ns = 0, interrupted_ns = 0;
	u32 descendants = 0, dropped = 0;

	if (!cpu)
		return 0;
	depth = cpu->depth;
	for (step = 0; step < DEPTH_MAX; step++) {
		if (step >= depth)
			break;
		position = (depth - 1 - step) & (DEPTH_MAX - 1);
		if (cpu->frames[position].key == key) {
			found = position + 1;
			break;
		}
		nested_ns += cpu->frames[position].nested_ns;
		probes_ns += cpu->frames[position].probes_ns;
		descendants += cpu->frames[position].descendants;
		if (cpu->frames[position].interrupted_ns > interrupted_ns)
			interrupted_ns = cpu->frames[position].interrupted_ns;
		dropped++;
	}
	if (!found) {
		cpu->unmatched_exits++;
		return 0;
	}
	for (step = 0; step < DEPTH_MAX; step++) {
		if (step >= dropped)
			break;
		abandon(cpu, found + step);
	}
	position = (found - 1) & (DEPTH_MAX - 1);
	cpu->abandoned += dropped;
	cpu->frames[position].nested_ns += nested_ns;
	cpu->frames[position].probes_ns += probes_ns;
	cpu->frames[position].descendants += descendants;
	if (cpu->frames[position].interrupted_ns < interrupted_ns)
		cpu->frames[position].interrupted_ns = interrupted_ns;
	if (dropped)
		spoil_events(position);
	cpu->depth = found;
	return found;
}

/* A program that runs inside a span. */
struct probe_run {
	struct frame *frame; /* the span's frame; 0: in no span */
	u64 since_ns;
	u64 nested_ns;
};

/* A span that closes or has just closed, and is not counted yet. */
struct closed_span {
	u64 end_ns;
	u64 raw_ns;
	u64 nested_ns; /* nested_ns of its frame when the span ended */
	u64 probes_ns;
	u64 overhead_ns; /* the probes' overhead inside the span */
	u64 self_ns;
	u64 inclusive_ns;
	u64 clamped_ns; /* the missing time, if the span is shorter than the subtracted time */
	u32 descendants;
	u32 position;
	u32 closed; /* cpu->closed after it was taken off the stack */
#if defined(IRQLAB_VICTIMS) || defined(IRQLAB_TRACE)
	u32 counted; /* its row has its time */
#endif
	struct probe_run run; /* this program, in the parent span */
};

/* Returns a probe pair's overhead inside a span of `key`. */
static __always_inline u64 overhead_of(struct cpu_state *cpu, u32 key)
{
	return word_of(cpu, key) >> (ROW_BITS + OVERHEAD_UNIT_SHIFT);
}

/*
 * Whether the exit program of the span that was just counted is timed. The row's first span is not
 * timed, because its program claims the row.
 */
static __always_inline bool times_exit(struct row *row)
{
	u64 count = row->count;

	return cfg.times_exits && (!(count & ((1 << TIMED_SHIFT) - 1)) || count - 2 < 1 << TIMED_SHIFT);
}

/*
 * Learns from an exit program that took `spent_ns`: the pair's overhead inside spans of
 * this key follows that time.
 */
static __always_inline void learn_overhead(struct cpu_state *cpu, struct row *row, u64 spent_ns)
{
	u64 inside = cpu->inside_fixed +
		     (spent_ns * cpu->inside_ratio >> (RATIO_SHIFT - OVERHEAD_UNIT_SHIFT));
	u64 index = row->key, overhead;
	u32 *word;

	if (cpu->inside_ratio && inside > (u64)cpu->overhead_max_ns << OVERHEAD_UNIT_SHIFT)
		return;
	row->timed_exits++;
	row->timed_exits_ns += spent_ns;
	/*
	 * Rows without their own word share one, and the first timed exit of each row
	 * restarts the word's mean.
	 */
	if (!cpu->inside_ratio)
		return;
	if (!is_dense(&index))
		index = KEY_NONE;
	/* Opaque, as in word_of. */
	asm volatile("" : "+r"(index));
	word = &cpu->key_words[index];
	overhead = *word >> ROW_BITS;
	overhead = row->timed_exits == 1 ? inside
					 : overhead - (overhead >> LEARNING_SHIFT) +
						   (inside >> LEARNING_SHIFT);
	*word = (*word & ((1 << ROW_BITS) - 1)) | overhead << ROW_BITS;
}

/*
 * Ends a span whose exit program has read the clock as `now_ns`, and stores its contents at that
 * time. `fixed_ns` replaces later clock readings.
 */
static __always_inline void end_span(struct frame *frame, struct closed_span *span, u64 now_ns,
				     u64 fixed_ns)
{
	u32 reading;

	for (reading = 0; reading < CLOCK_READINGS_MAX; reading++) {
		span->end_ns = now_ns;
		span->nested_ns = frame->nested_ns;
		span->probes_ns = frame->probes_ns;
		span->descendants = frame->descendants;
		barrier();
		if (frame->interrupted_ns < now_ns)
			break;
		now_ns = fixed_ns ? fixed_ns : bpf_ktime_get_ns();
	}
	span->raw_ns = span->end_ns - frame->start_ns;
	if ((s64)span->raw_ns < 0)
		span->raw_ns = 0;
}

/* Finds the innermost open span of `key`, and its contents until now; 0 if there is none. */
static __always_inline struct frame *measure_span(struct cpu_state *cpu, u32 key, u64 now_ns,
						  u64 fixed_ns, struct closed_span *span)
{
	u32 depth = cpu->depth;
	struct frame *frame;

	if (!depth || cpu->frames[(depth - 1) & (DEPTH_MAX - 1)].key != key) {
		depth = unwind_to(cpu, key);
		if (!depth)
			return 0;
	}
	span->position = (depth - 1) & (DEPTH_MAX - 1);
	frame = &cpu->frames[span->position];
	end_span(frame, span, now_ns, fixed_ns);
	return frame;
}

/* Takes a measured span off the stack, and charges it to its parent. */
static __always_inline void release_span(struct cpu_state *cpu, struct frame *frame,
					 struct closed_span *span, struct events *events)
{
	u64 raw_ns = span->raw_ns, overhead_ns, nested_ns, probes_ns;
	u32 position = span->position;

	overhead_ns = overhead_of(cpu, frame->key);
	span->overhead_ns = overhead_ns;
	nested_ns = span->nested_ns + overhead_ns;
	/* A span inside may be shorter than its probes' overhead, which is a mean. */
	probes_ns = span->probes_ns + overhead_ns;
	if (probes_ns > nested_ns)
		probes_ns = nested_ns;
	span->inclusive_ns = raw_ns > probes_ns ? raw_ns - probes_ns : 0;
	span->self_ns = raw_ns > nested_ns ? raw_ns - nested_ns : 0;
	span->clamped_ns = raw_ns < nested_ns ? nested_ns - raw_ns : 0;
	/*
	 * Sets all fields, because the compiler may move undefined values, which the verifier
	 * refuses.
	 */
#if defined(IRQLAB_VICTIMS) || defined(IRQLAB_TRACE)
	span->counted = 0;
#endif
	span->run.frame = 0;
	span->run.since_ns = 0;
	span->run.nested_ns = 0;
	take_events(position, events);
	if (position > 0) {
		struct frame *parent = &cpu->frames[(position - 1) & (DEPTH_MAX - 1)];
		/* The overhead of entering the entry program and leaving the exit program. */
		u64 outside_ns = overhead_ns * cpu->outside_ratio >> RATIO_SHIFT;

		parent->nested_ns += raw_ns + outside_ns;
		span->run.frame = parent;
		span->run.since_ns = span->end_ns;
		span->run.nested_ns = parent->nested_ns;
		/* IRQs after the end of the span were charged to it, but belong to its parent. */
		parent->nested_ns += frame->nested_ns - span->nested_ns;
		parent->probes_ns += frame->probes_ns + overhead_ns + outside_ns;
		parent->descendants += frame->descendants + 1;
	}
	span->closed = ++cpu->closed;
	barrier();
	cpu->depth = position;
}

/*
 * Takes the innermost open span of `key` off the stack, and charges it to its parent. `now_ns` is
 * the exit program's first clock reading. `fixed_ns` replaces later readings.
 */
static __always_inline bool close_span(struct cpu_state *cpu, u32 key, u64 now_ns, u64 fixed_ns,
				       struct closed_span *span, struct events *events)
{
	struct frame *frame = measure_span(cpu, key, now_ns, fixed_ns, span);

	if (!frame)
		return false;
	release_span(cpu, frame, span, events);
	return true;
}

static __always_inline struct frame *innermost(struct cpu_state *cpu)
{
	u32 depth = cpu->depth;
	struct frame *frame = depth ? &cpu->frames[(depth - 1) & (DEPTH_MAX - 1)] : 0;

	/* Opaque to the compiler, which would check `depth` again where the verifier needs the pointer. */
	asm volatile("" : "+r"(frame));
	return frame;
}

/*
 * Opens the span of `key` that another program on the same tracepoint has claimed. `now_ns` is this
 * program's clock reading. Returns false if there is no such span.
 */
static __always_inline bool open_what_is_claimed(struct cpu_state *cpu, u32 key, u64 now_ns)
{
	u32 position = (cpu->depth - 1) & (DEPTH_MAX - 1);
	struct frame *frame = innermost(cpu);

	if (!frame || frame->start_ns || frame->key != key)
		return false;
	/*
	 * No frame contains the events of an interrupt between the two programs, so the
	 * parent's events are not known.
	 */
	if (position && was_interrupted(frame))
		spoil_events(position - 1);
	open_claimed(cpu, frame, position, now_ns, 0);
	return true;
}

/* Starts a program that opens and closes no span. */
static __always_inline void start_probe_run(struct cpu_state *cpu, struct probe_run *run,
					    u64 now_ns)
{
	run->frame = innermost(cpu);
	run->since_ns = now_ns;
	run->nested_ns = run->frame ? run->frame->nested_ns : 0;
}

/*
 * Charges this program's time to the span in which it runs. Interrupts in between have charged
 * themselves. `fixed_ns` replaces the clock reading.
 */
static __always_inline void charge_probe_run(struct probe_run *run, u64 more_ns, u64 fixed_ns)
{
	u64 spent_ns = (fixed_ns ? fixed_ns : bpf_ktime_get_ns()) - run->since_ns;

	spent_ns -= run->frame->nested_ns - run->nested_ns;
	if ((s64)spent_ns < 0)
		return;
	run->frame->interrupted_ns = run->since_ns;
	run->frame->nested_ns += spent_ns + more_ns;
	run->frame->probes_ns += spent_ns + more_ns;
}

/* Ends such a program. Entering and leaving it cost as much as the inside of an empty span. */
static __always_inline void end_probe_run(struct cpu_state *cpu, struct probe_run *run,
					  struct events *since)
{
	if (!run->frame)
		return;
	charge_events(cpu->depth - 1, since);
	charge_probe_run(run, overhead_of(cpu, run->frame->key), 0);
}

#include "victims.h"
#include "trace.h"

/* Times the exit program of a span, and charges its time until now to the parent span. */
static __always_inline void time_exit_probe(struct cpu_state *cpu, struct row *row,
					   struct closed_span *span, struct events *since)
{
	bool is_timed = row && times_exit(row);
	u64 now_ns;

	if (!span->run.frame && !is_timed)
		return;
	if (span->run.frame)
		charge_events(span->position - 1, since);
	now_ns = bpf_ktime_get_ns();
	if (span->run.frame)
		charge_probe_run(&span->run, 0, now_ns);
	/* Spans of an IRQ in between do not belong to this program. */
	if (is_timed && cpu->closed == span->closed)
		learn_overhead(cpu, row, now_ns - span->end_ns);
}

/* Ends the exit program of a span, which counted the span in `row`, if there was a row. */
static __always_inline void end_exit_probe(struct cpu_state *cpu, struct row *row,
					   struct closed_span *span, struct events *since)
{
	time_exit_probe(cpu, row, span, since);
#ifdef IRQLAB_VICTIMS
	if (!SUMS_VICTIMS || !row || !span->counted)
		return;
	/* After the timing: the overhead is learned from programs that do only what all do. */
	start_probe_run(cpu, &span->run, bpf_ktime_get_ns());
	charge_victim(cpu, row->key, span->position, span->end_ns - span->raw_ns, span->self_ns);
	if (span->run.frame)
		charge_probe_run(&span->run, 0, 0);
#endif
#ifdef IRQLAB_TRACE
	/* After the timing, too. */
	if (row && span->counted)
		trace_span(cpu, row, span);
#endif
}

/* Counts a span that has closed. */
static __always_inline void count_span(struct cpu_state *cpu, struct row *row,
				       struct closed_span *span, struct events *events)
{
	struct nested_times *nested = 0;

	if (span->descendants) {
		if (cfg.empty_spans_only)
			return;
		nested = nested_times_of(cpu, row);
		if (!nested) {
			cpu->unattributed++;
			return;
		}
	}
	add_value(row, span->self_ns, span->end_ns, cpu->armed_ns);
	row->overhead_ns += span->overhead_ns;
	if (span->clamped_ns) {
		row->clamped++;
		row->clamped_ns += span->clamped_ns;
	}
	if (!nested) {
		count_in_histogram(row, span->self_ns);
	} else {
		row->nested_count++;
		/* The missing self time is subtracted from both totals, but no inclusive time is missing here. */
		row->nested_extra += span->inclusive_ns - span->self_ns + span->clamped_ns;
		if (span->inclusive_ns >= row->nested_max) {
			row->nested_max = span->inclusive_ns;
			row->nested_max_at_ns = span->end_ns;
		}
		nested->self_time[slot_of_value(span->self_ns)]++;
		nested->inclusive_time[slot_of_value(span->inclusive_ns)]++;
	}
	count_events(row, events, span->end_ns, cpu->armed_ns);
#if defined(IRQLAB_VICTIMS) || defined(IRQLAB_TRACE)
	span->counted = 1;
#endif
}

#endif
