/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/* The slots of a histogram, as in crates/stats/src/histogram.rs. */
#ifndef IRQLAB_DISTRIBUTION_SLOTS_H
#define IRQLAB_DISTRIBUTION_SLOTS_H

static __always_inline u32 log2_u64(u64 value)
{
	u32 log = 0;

	if (value >> 32) { log += 32; value >>= 32; }
	if (value >> 16) { log += 16; value >>= 16; }
	if (value >> 8) { log += 8; value >>= 8; }
	if (value >> 4) { log += 4; value >>= 4; }
	if (value >> 2) { log += 2; value >>= 2; }
	return log + (value >> 1);
}

static __always_inline u64 slot_of_value(u64 value)
{
	u64 slot = value;

	if (value >> 35) {
		slot = HISTOGRAM_SLOTS - 1;
	} else if (value >= 16) {
		u32 shift = log2_u64(value) - 4;

		slot = shift * 16 + (value >> shift);
	}
	/* Opaque to the compiler, which would drop the bound that the verifier needs. */
	asm volatile("%0 &= %1" : "+r"(slot) : "i"(HISTOGRAM_SLOTS - 1));
	return slot;
}

#endif
