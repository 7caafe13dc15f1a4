/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Names the senders of interrupts that other CPUs send to a measured CPU: function calls and reschedule interrupts. The
 * mark at the entry of such an interrupt contains the number of its sender. A record for each number says who it is.
 *
 * The vector of function calls shows its sender only when the first function starts. So the mark of its entry is written
 * then, or at the exit, with the time of the entry. Where the next function has another sender, the interrupt ends and
 * starts again in the marks. No nanosecond is added or lost.
 */
#ifndef IRQLAB_NOISE_SENDERS_H
#define IRQLAB_NOISE_SENDERS_H

#include "sent_calls.h"
#include "system_calls.h"
#include "unseen_calls.h"

/* The numbers of senders, from 1 on. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1); /* the loader sets it to MARK_SENDERS_MAX */
	__type(key, struct noise_sender);
	__type(value, u32);
} sender_numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} last_sender_number SEC(".maps");

/* The interrupt of function calls that this CPU handles. */
struct call_interrupt {
	u64 entered_ns;
	u64 last_wakeup_ns; /* when the last function that wakes queued tasks started */
	u32 key;
	u32 sender; /* number of the sender of the function that runs; 0: not known */
	u8 is_open;
	u8 is_marked; /* whether the mark of the entry is written */
	u8 is_uncertain; /* whether irq_work may run in it, which has no event */
	u8 unused[5];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct call_interrupt);
} call_interrupts SEC(".maps");

static __always_inline struct call_interrupt *call_interrupt_here(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&call_interrupts, &zero);
}

/* Writes the record of a new sender. Returns whether there was room for it. */
static __always_inline bool describe_sender(struct noise_sender *sender, u32 number)
{
	struct noise_sender_record *record = reserve(sizeof(*record));

	if (!record)
		return false;
	record->sender = *sender;
	record->mark.at_ns = bpf_ktime_get_ns();
	record->mark.cpu = sender->cpu;
	record->mark.what = MARK_SENDER;
	record->mark.key = number;
	record->mark.value = 0;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	return true;
}

/* The number of a sender; MARK_SENDERS_OTHER if all numbers are in use; 0 if its record found no room. */
static __noinline u32 number_of_sender(struct noise_sender *sender)
{
	u32 zero = 0, number;
	u32 *known, *last;

	if (!sender)
		return 0;
	known = bpf_map_lookup_elem(&sender_numbers, sender);
	if (known)
		return *known;
	last = bpf_map_lookup_elem(&last_sender_number, &zero);
	if (!last || *last >= MARK_SENDERS_MAX)
		return MARK_SENDERS_OTHER;
	number = __sync_fetch_and_add(last, 1) + 1;
	/* The record comes first: a mark must not contain a number that the reader has not seen. */
	if (!describe_sender(sender, number))
		return 0;
	if (bpf_map_update_elem(&sender_numbers, sender, &number, BPF_NOEXIST)) {
		/* Another CPU has numbered this sender meanwhile, or the map is full. */
		known = bpf_map_lookup_elem(&sender_numbers, sender);
		return known ? *known : MARK_SENDERS_OTHER;
	}
	return number;
}

/* Names the task or the interrupt that sends now, as a party whose id is its number. */
static __always_inline void name_sender_now(struct party *party, struct sender_key *key, u32 event,
					    u64 function)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct noise_sender sender = {};
	u32 call;

	/* Functions are called from few places, which the marks do not show. */
	name_sender(key, context_now(), event, function, 0);
	sender.key = *key;
	sender.cpu = bpf_get_smp_processor_id();
	if (key->context == KEY_NONE) {
		sender.process = bpf_get_current_pid_tgid() >> 32;
		if (sender.process && !(BPF_CORE_READ(task, flags) & KERNEL_THREADS)) {
			call = call_by_registers(task);
			sender.system_call = call <= SERVICE_SYSCALLS ? call : 0;
		}
	}
	party->id[0] = number_of_sender(&sender);
	party->id[1] = 0;
	party->kind = party->id[0] ? PARTY_TASK : PARTY_UNKNOWN;
	party->unused = 0;
}

static __always_inline u32 number_of_party(struct party *party)
{
	return party->kind == PARTY_UNKNOWN ? 0 : party->id[0];
}

static __always_inline bool is_call_vector(u32 key)
{
	return key == KEY_OF_call_function || key == KEY_OF_call_function_single;
}

static __always_inline int enter_vector(u32 key)
{
	struct call_interrupt *interrupt;
	struct party sender = {};
	u64 at_ns;
	u32 cpu;

	if (!cfg.follows_senders || (key != KEY_OF_reschedule && !is_call_vector(key)))
		return enter(key);
	at_ns = bpf_ktime_get_ns();
	cpu = bpf_get_smp_processor_id();
	interrupt = loop_here(cpu) ? call_interrupt_here() : 0;
	if (interrupt && key == KEY_OF_reschedule) {
		take_reschedule(0, at_ns, &sender);
		mark_of(at_ns, cpu, MARK_ENTER, key, number_of_party(&sender));
	} else if (interrupt) {
		interrupt->entered_ns = at_ns;
		interrupt->key = key;
		interrupt->sender = 0;
		interrupt->is_open = 1;
		interrupt->is_marked = 0;
	}
	note_entry(key);
	return 0;
}

/* Marks the sender of the function that starts, or 0 at the exit of the interrupt if no function has started. */
static __always_inline void mark_sender(struct call_interrupt *interrupt, u32 cpu, u64 now_ns,
					u32 sender)
{
	if (!interrupt->is_marked) {
		interrupt->is_marked = 1;
		interrupt->is_uncertain = may_contain_irq_work(interrupt->entered_ns);
		if (interrupt->is_uncertain)
			sender = 0;
		interrupt->sender = sender;
		mark_of(interrupt->entered_ns, cpu, MARK_ENTER, interrupt->key, sender);
	} else if (!interrupt->is_uncertain && sender != interrupt->sender) {
		interrupt->sender = sender;
		mark_of(now_ns, cpu, MARK_LEAVE, interrupt->key, 0);
		mark_of(now_ns, cpu, MARK_ENTER, interrupt->key, sender);
	}
}

static __always_inline int leave_vector(u32 key)
{
	struct call_interrupt *interrupt;
	u64 at_ns;
	u32 cpu;

	if (!cfg.follows_senders || !is_call_vector(key))
		return leave(key);
	at_ns = bpf_ktime_get_ns();
	cpu = bpf_get_smp_processor_id();
	interrupt = call_interrupt_here();
	if (interrupt && loop_here(cpu)) {
		if (interrupt->is_open && !interrupt->is_marked)
			mark_sender(interrupt, cpu, at_ns, 0);
		mark_of(at_ns, cpu, MARK_LEAVE, key, 0);
	}
	if (interrupt)
		interrupt->is_open = 0;
	note_exit(key);
	return 0;
}

/* The verifier lets no typed program load an argument that points to a function, so the programs at csd_* are not typed. */
#define TRACEPOINTS(name) SEC("?raw_tp/" name)

TRACEPOINTS("csd_queue_cpu") int call_queued(u64 *ctx)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct call_id id = { .csd = ctx[3], .target = (u32)ctx[0] };
	struct queued_call call = { .queued_ns = now_ns };
	u32 event;

	if (!loop_here(id.target)) {
		forget_queued(&id);
		return 0;
	}
	event = SENDER_CALL + (csd_type(id.csd) & 3);
	if (event == SENDER_IRQ_WORK) {
		note_irq_work(id.target, now_ns);
		return 0;
	}
	name_sender_now(&call.party, &call.sender, event, ctx[2]);
	if (event == SENDER_CALL + CSD_WAKEUP)
		note_wakeup(id.target, &call.party);
	note_queued(&id, &call);
	return 0;
}

TRACEPOINTS("csd_function_entry") int call_starts(u64 *ctx)
{
	u64 now_ns = bpf_ktime_get_ns(), queued_ns;
	struct call_id id = { .csd = ctx[1], .target = bpf_get_smp_processor_id() };
	struct call_interrupt *interrupt = call_interrupt_here();
	struct sender_key key = {};
	struct party sender = {};

	/* Without a csd, the kernel calls the function for its own CPU. */
	if (!id.csd || !interrupt)
		return 0;
	/* On a CPU that is not measured, too: a later run must not be joined to this call. */
	queued_ns = take_queued(&id, ctx[0], interrupt->last_wakeup_ns, &key, &sender);
	if (csd_type(id.csd) == CSD_WAKEUP) {
		interrupt->last_wakeup_ns = now_ns;
		/* The wake-ups that follow in this run have no event. */
		if (!is_only_waker(id.target, &sender))
			queued_ns = 0;
	}
	if (interrupt->is_open && loop_here(id.target))
		mark_sender(interrupt, id.target, now_ns, queued_ns ? number_of_party(&sender) : 0);
	return 0;
}

TRACEPOINT("ipi_send_cpu") int interrupt_sent(u64 *ctx)
{
	u64 now_ns = bpf_ktime_get_ns();
	struct sender_key key = {};
	struct party sender = {};
	u32 target = ctx[0];

	/* Interrupts with a callback belong to queued calls. */
	if (ctx[2] || !loop_here(target))
		return 0;
	name_sender_now(&sender, &key, SENDER_IPI, 0);
	note_reschedule(target, &sender, now_ns);
	return 0;
}

#endif
