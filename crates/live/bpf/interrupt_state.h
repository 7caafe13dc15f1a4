/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * The bits of the kernel's count that says whether a CPU handles an interrupt or a softirq, and the kinds of keys.
 * senders.h and wakers.h find with them the interrupt that acts.
 */
#ifndef IRQLAB_INTERRUPT_STATE_H
#define IRQLAB_INTERRUPT_STATE_H

#include "constants.h"

/* include/linux/preempt.h */
#define PREEMPT_SOFTIRQ (1 << 8) /* a softirq runs; the other bits of the field count its prohibitions */
#define PREEMPT_HARDIRQ (0xf << 16)
#define PREEMPT_NMI (0xf << 20)

static __always_inline bool is_softirq_key(u32 key)
{
	return key >= KEY_SOFTIRQ && key < KEY_NMI;
}

static __always_inline bool is_hardirq_key(u32 key)
{
	return (key >= KEY_VECTOR && key < KEY_SOFTIRQ) || (key >= KEY_IRQ && key < KEY_DELAY_SOFTIRQ);
}

#endif
