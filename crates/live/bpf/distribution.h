/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* Counts values in sums, batches, sections and histograms. */
#ifndef IRQLAB_DISTRIBUTION_H
#define IRQLAB_DISTRIBUTION_H

#include "distribution_slots.h"

#define SECTION_PAIRS (SECTION_SLOTS / 2)

/* Counts a value in a row's histogram. In a pass with events a row has no histogram. */
static __always_inline void count_in_histogram(struct row *row, u64 value)
{
	if (!cfg.events)
		row->slots[slot_of_value(value)]++;
}

/*
 * Counts a value in the section of the window that contains its batch. Sections say how much the
 * distribution differs between parts of the window. Without them, intervals of quantiles would
 * treat spans as independent. Not inlined, because the frame of the longest program would exceed
 * the limit of kernels before 6.13.
 */
__noinline int count_in_section(struct row *row, u64 value, u64 batch)
{
	u64 slot = slot_of_value(value), index;
	s64 position;

	if (!row)
		return 0;
	if (row->count == 1)
		row->section_base = slot > SECTION_SLOTS / 2 ? slot - SECTION_SLOTS / 2 : 0;
	position = (s64)slot - row->section_base;
	if (position < 0)
		position = 0;
	if (position > SECTION_SLOTS - 1)
		position = SECTION_SLOTS - 1;
	index = batch / BATCHES_IN_SECTION * SECTION_SLOTS + position;
	/* Opaque to the compiler, which would drop the bound that the verifier needs. */
	asm volatile("%0 &= %1" : "+r"(index) : "i"(SECTIONS * SECTION_SLOTS - 1));
	row->sections[index]++;
	return 0;
}

/*
 * Does for the sections what double_batches does for batches. Adds two slots at a time: a count
 * that overflows spoils its neighbour, and the reader drops sections that do not add up.
 */
static __always_inline void double_sections(u64 *sections)
{
	u32 section, pair;

	for (section = 0; section < SECTIONS / 2; section++) {
		u64 *to = &sections[section * SECTION_PAIRS], *from = &sections[2 * section * SECTION_PAIRS];

		for (pair = 0; pair < SECTION_PAIRS; pair++)
			to[pair] = from[pair] + from[pair + SECTION_PAIRS];
	}
	for (pair = SECTIONS / 2 * SECTION_PAIRS; pair < SECTIONS * SECTION_PAIRS; pair++) {
		sections[pair] = 0;
		barrier(); /* else the compiler calls memset, which BPF does not have */
	}
}

/*
 * Does for the sums of events by batch what double_batches does for batches. Unrolled for each
 * batch, because the verifier checks every iteration.
 */
static __always_inline void double_event_batches(u64 *slots)
{
	u32 batch, event;

	for (batch = 0; batch < BATCHES / 2; batch++) {
		u64 *to = &slots[batch * EVENTS_MAX], *from = &slots[2 * batch * EVENTS_MAX];

#pragma unroll
		for (event = 0; event < EVENTS_MAX; event++)
			to[event] = from[event] + from[event + EVENTS_MAX];
	}
	for (batch = BATCHES / 2; batch < BATCHES; batch++) {
#pragma unroll
		for (event = 0; event < EVENTS_MAX; event++)
			slots[batch * EVENTS_MAX + event] = 0;
		barrier(); /* else the compiler calls memset, which BPF does not have */
	}
}

/*
 * Doubles the length of the batches, which halves the number of batches in use. Not static, so that
 * the verifier checks its loops once, and not for each call and on each path that leads to it.
 */
__noinline int double_batches(struct row *row)
{
	u32 i;

	if (!row)
		return 0;
	for (i = 0; i < BATCHES / 2; i++) {
		row->batches[i].count = row->batches[2 * i].count + row->batches[2 * i + 1].count;
		row->batches[i].sum = row->batches[2 * i].sum + row->batches[2 * i + 1].sum;
	}
	for (i = BATCHES / 2; i < BATCHES; i++) {
		row->batches[i].count = 0;
		row->batches[i].sum = 0;
	}
	if (cfg.events)
		double_event_batches(row->slots);
	else
		double_sections((u64 *)row->sections);
	row->batch_shift++;
	return 0;
}

/*
 * Doubles the length of the batches until `elapsed_ns` falls into one of them. Rare: a row needs at
 * most 40 doublings in a run of any length.
 */
__noinline int lengthen_batches(struct row *row, u64 elapsed_ns)
{
	u32 doubling;

	if (!row)
		return 0;
	for (doubling = 0; doubling < 40; doubling++) {
		if ((elapsed_ns >> (row->batch_shift & 63)) < BATCHES)
			break;
		double_batches(row);
	}
	return 0;
}

/* Returns the batch of the time `now_ns`. */
static __always_inline u64 batch_at(struct row *row, u64 now_ns, u64 armed_ns)
{
	u64 elapsed_ns = now_ns - armed_ns;
	u64 batch = elapsed_ns >> (row->batch_shift & 63);

	if (batch >= BATCHES) {
		lengthen_batches(row, elapsed_ns);
		batch = elapsed_ns >> (row->batch_shift & 63);
	}
	return batch & (BATCHES - 1);
}

/*
 * Counts a value in the sums and the maximum. Also counts it in batches and sections,
 * except in a pass with events, whose batches are those of the events. The caller counts
 * the value in a histogram.
 */
static __always_inline void add_value(struct row *row, u64 value, u64 now_ns, u64 armed_ns)
{
	u64 narrow = value >> 32 ? 0xffffffffULL : value; /* squares of up to 4.29 s */
	u64 square = narrow * narrow;

	row->count++;
	row->sum += value;
	row->squares_low += square;
	if (row->squares_low < square)
		row->squares_high++;
	if (value >= row->max) {
		row->max = value;
		row->max_at_ns = now_ns;
	}
	if (!cfg.events) {
		u64 batch = batch_at(row, now_ns, armed_ns);

		row->batches[batch].count++;
		row->batches[batch].sum += value;
		count_in_section(row, value, batch);
	}
}

#endif
