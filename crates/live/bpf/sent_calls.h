/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Joins a call of a function on another CPU to its run there. handlers.bpf.c (senders.h) and noise.bpf.c
 * (noise_senders.h) use it.
 *
 * A queued call is joined to its run by the address of the kernel's call_single_data (csd) and by the target CPU. An
 * event may not come to the programs, so a run is joined only where no other call can lie between: see
 * attribution::senders, which has the same rules and a test of them.
 *
 * All functions have small frames, because their programs run in the middle of the kernel's own work.
 */
#ifndef IRQLAB_SENT_CALLS_H
#define IRQLAB_SENT_CALLS_H

#include "parties.h"

/* include/linux/smp_types.h: the flags of a csd. The kernel gives these numbers no named type. */
#define CSD_LOCKED 1
#define CSD_TYPE_MASK 0xf0
#define CSD_TYPE_SHIFT 4
#define CSD_ASYNC 0
#define CSD_WAKEUP 3

struct call_id {
	u64 csd;
	u64 target; /* CPU that calls the function */
};

/* A call that waits for its run on its target. */
struct queued_call {
	u64 queued_ns;
	u32 calls; /* number of calls that were seen without a run; the kernel has at most two */
	u32 sender_cpu; /* for traces only */
	struct party party; /* of the sender, for its victims */
	struct sender_key sender;
};

/*
 * A task's csd for wake-ups stays here if its wake-up is run together with others, because that has no event. So the
 * map drops the least recently used call when it is full. The dropped call is one that is not joined.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, QUEUED_CALLS_MAX);
	__type(key, struct call_id);
	__type(value, struct queued_call);
} queued_calls SEC(".maps");

/* Sets all fields: the compiler must leave no byte of a key undefined. */
static __always_inline void name_sender(struct sender_key *key, u32 context, u32 event,
					u64 function, u64 call_site)
{
	key->function = function;
	key->call_site = call_site;
	key->event = event;
	key->context = context;
	__builtin_memset(key->task, 0, sizeof(key->task));
	if (key->context == KEY_NONE)
		bpf_get_current_comm(key->task, sizeof(key->task));
}

static __always_inline u32 csd_flags(u64 csd)
{
	struct __call_single_node *node = (void *)csd; /* the first field of a csd */

	return BPF_CORE_READ(node, u_flags);
}

static __always_inline u32 csd_type(u64 csd)
{
	return (csd_flags(csd) & CSD_TYPE_MASK) >> CSD_TYPE_SHIFT;
}

/* Notes a call, whose run comes. `call`: with all fields but `calls`. */
static __always_inline void note_queued(struct call_id *id, struct queued_call *call)
{
	struct queued_call *earlier = bpf_map_lookup_elem(&queued_calls, id);

	/*
	 * The kernel unlocks the csd of an asynchronous call just before the call. So it can be queued again before that
	 * event. All other csds are queued only after their run: the run of the earlier call was not seen.
	 */
	call->calls = earlier && call->sender.event == SENDER_CALL + CSD_ASYNC ? 2 : 1;
	bpf_map_update_elem(&queued_calls, id, call, BPF_ANY);
}

/* The csd is queued anew, by a call that is not followed: an earlier call must not be joined to the run. */
static __always_inline void forget_queued(struct call_id *id)
{
	bpf_map_delete_elem(&queued_calls, id);
}

/*
 * Takes the call that a run belongs to. Returns when it was queued, and copies its sender and the sender's party; 0 if
 * no call can be joined to the run.
 */
static __always_inline u64 take_queued(struct call_id *id, u64 function, u64 last_wakeup_ns,
				       struct sender_key *sender, struct party *party)
{
	struct queued_call *call = bpf_map_lookup_elem(&queued_calls, id);
	bool is_queued_again;
	u64 queued_ns;

	if (!call)
		return 0;
	/* The csd is locked again: the last call is not that of this run. */
	is_queued_again = call->sender.event == SENDER_CALL + CSD_ASYNC &&
			  csd_flags(id->csd) & CSD_LOCKED;
	if (is_queued_again && call->calls > 1) {
		call->calls = 1;
		return 0;
	}
	queued_ns = call->queued_ns;
	/*
	 * A function that wakes queued tasks wakes all of them, and has an event for the first only. A wake-up that was
	 * queued before the last such function started is done.
	 */
	if (is_queued_again || call->sender.function != function ||
	    (call->sender.event == SENDER_CALL + CSD_WAKEUP && queued_ns <= last_wakeup_ns)) {
		queued_ns = 0;
	} else {
		*sender = call->sender;
		*party = call->party;
	}
	bpf_map_delete_elem(&queued_calls, id);
	return queued_ns;
}

#endif
