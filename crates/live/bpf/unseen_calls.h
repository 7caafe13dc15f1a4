/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Interrupts of other CPUs whose join to their sender needs more than the event of the run: reschedule interrupts have no
 * record, irq_work runs without an event, and one run serves several wake-ups. victims.h and noise_senders.h use this.
 */
#ifndef IRQLAB_UNSEEN_CALLS_H
#define IRQLAB_UNSEEN_CALLS_H

#include "parties.h"

#define VECTOR_KEY(position, name) KEY_OF_##name = KEY_VECTOR + position,
enum { VECTORS(VECTOR_KEY) };

/* The sender of the reschedule interrupts that are on their way to a CPU. */
struct sent_reschedule {
	u64 sent_ns; /* of the first of them */
	struct party sender; /* of the kind PARTY_UNKNOWN, whatever its id, if there are several */
};

/* By the target CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SENDER_CPU_WORDS * 64);
	__type(key, u32);
	__type(value, struct sent_reschedule);
} sent_reschedules SEC(".maps");

/*
 * Calls to a CPU whose runs have no event. The kernel executes queued irq_work without an event. It wakes all tasks whose
 * wake-ups are queued in one run, with an event for the first wake-up.
 */
struct unseen_calls {
	u64 waker; /* fingerprint of the party that queued wake-ups; 0: no wake-up is queued */
	u64 has_several_wakers;
	u64 irq_work_ns; /* when an irq_work was last queued */
	u64 span_ns; /* start of the last span of function calls */
};

/* By the target CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SENDER_CPU_WORDS * 64);
	__type(key, u32);
	__type(value, struct unseen_calls);
} unseen_calls SEC(".maps");

static const struct unseen_calls NO_UNSEEN_CALLS = {};

static __always_inline bool is_same_party(struct party *first, struct party *second)
{
	return first->id[0] == second->id[0] && first->id[1] == second->id[1] &&
	       first->kind == second->kind;
}

/* Notes the sender of a reschedule interrupt. */
static __always_inline void note_reschedule(u32 target, struct party *sender, u64 now_ns)
{
	struct sent_reschedule sent = { .sent_ns = now_ns, .sender = *sender };
	struct sent_reschedule *earlier;

	/* Of two CPUs that send at the same time, one finds the other's entry. */
	if (!bpf_map_update_elem(&sent_reschedules, &target, &sent, BPF_NOEXIST))
		return;
	earlier = bpf_map_lookup_elem(&sent_reschedules, &target);
	if (earlier && !is_same_party(&earlier->sender, sender))
		earlier->sender.kind = PARTY_UNKNOWN;
}

/*
 * The sender of the reschedule interrupt whose span started at start_ns. `window_ns`: an interrupt that was sent earlier is
 * not that of the span.
 */
static __always_inline void take_reschedule(u64 window_ns, u64 start_ns, struct party *sender)
{
	u32 target = bpf_get_smp_processor_id();
	struct sent_reschedule *sent = bpf_map_lookup_elem(&sent_reschedules, &target);

	/* An interrupt that is sent after the start of this span is on its way. */
	if (!sent || sent->sent_ns > start_ns)
		return;
	if (sent->sent_ns >= window_ns && sent->sender.kind != PARTY_UNKNOWN)
		*sender = sent->sender;
	bpf_map_delete_elem(&sent_reschedules, &target);
}

static __always_inline struct unseen_calls *unseen_calls_to(u32 target)
{
	struct unseen_calls *unseen = bpf_map_lookup_elem(&unseen_calls, &target);

	if (!unseen) {
		bpf_map_update_elem(&unseen_calls, &target, &NO_UNSEEN_CALLS, BPF_NOEXIST);
		unseen = bpf_map_lookup_elem(&unseen_calls, &target);
	}
	return unseen;
}

/* A number that stands for a party, and is not 0. A word can be exchanged atomically, a party cannot. */
static __always_inline u64 fingerprint_of(struct party *party)
{
	u64 odd = 0x9e3779b97f4a7c15ULL, mixed = party->id[0] * odd + party->id[1];

	return (mixed * odd + party->kind) * odd | 1;
}

/* Notes the party that queues a wake-up. */
static __noinline int note_wakeup(u32 target, struct party *waker)
{
	struct unseen_calls *unseen = unseen_calls_to(target);
	u64 fingerprint, earlier;

	if (!unseen || !waker)
		return 0;
	fingerprint = fingerprint_of(waker);
	earlier = __sync_val_compare_and_swap(&unseen->waker, 0, fingerprint);
	if (earlier && earlier != fingerprint)
		unseen->has_several_wakers = 1;
	return 0;
}

/* Whether one party has queued all wake-ups of the run that starts on a CPU. Forgets the wake-ups. */
static __noinline bool is_only_waker(u32 target, struct party *waker)
{
	struct unseen_calls *unseen = unseen_calls_to(target);
	bool is_only;

	if (!unseen || !waker)
		return false;
	is_only = !unseen->has_several_wakers && unseen->waker == fingerprint_of(waker);
	unseen->has_several_wakers = 0;
	unseen->waker = 0;
	return is_only;
}

static __noinline int note_irq_work(u32 target, u64 now_ns)
{
	struct unseen_calls *unseen = unseen_calls_to(target);

	if (unseen)
		unseen->irq_work_ns = now_ns;
	return 0;
}

/*
 * Whether irq_work may have run in this CPU's span of function calls that started at start_ns. Irq_work that was queued
 * before the start of the span before it ran in that span at the latest.
 */
static __noinline bool may_contain_irq_work(u64 start_ns)
{
	u32 target = bpf_get_smp_processor_id();
	struct unseen_calls *unseen = bpf_map_lookup_elem(&unseen_calls, &target);
	bool may_contain;

	if (!unseen)
		return false;
	may_contain = unseen->irq_work_ns > unseen->span_ns;
	unseen->span_ns = start_ns;
	return may_contain;
}

#endif
