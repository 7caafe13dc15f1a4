/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Delays of timers: from the time at which a timer is due to the start of its function. The timer itself has that time,
 * so no event begins the delay. Rows are as in delays.h; `special` counts timers without a delay.
 */
#ifndef IRQLAB_TIMER_DELAYS_H
#define IRQLAB_TIMER_DELAYS_H

#ifndef IRQLAB_NO_BTF

/*
 * Counts the delay of a timer whose function starts now. The timer has no delay if it was due before the window opened. A
 * negative delay means that another CPU has set the timer again, after the kernel took it from its queue.
 */
static __always_inline int end_timer_delay(u32 key, u64 function, s64 delay_ns, u64 now_ns)
{
	struct cpu_state *cpu = armed_cpu();
	struct events events;
	struct probe_run run;

	if (!cpu)
		return 0;
	start_probe_run(cpu, &run, now_ns);
	read_events_at_exit(cpu->depth, &events);
	if (delay_ns >= 0 && delay_ns <= (s64)(now_ns - cpu->armed_ns))
		count_delay(cpu, key, function, delay_ns, now_ns);
	else
		count_unjoined_end(cpu, key, function);
	end_probe_run(cpu, &run, &events);
	return 0;
}

/*
 * The time from which the timer may run is its soft expiry. The kernel may wait until the hard expiry for another
 * timer. The base's offset leads from the monotonic clock, which bpf_ktime_get_ns reads, to the clock of the timer.
 */
TRACEPOINT("hrtimer_expire_entry") int hrtimer_delay_ends(u64 *ctx)
{
	struct hrtimer *timer = (void *)ctx[0];
	u64 now_ns = bpf_ktime_get_ns();

	return end_timer_delay(KEY_DELAY_HRTIMER, (u64)timer->function,
			       now_ns + timer->base->offset - timer->_softexpires, now_ns);
}

TRACEPOINT("timer_expire_entry") int timer_delay_ends(u64 *ctx)
{
	struct timer_list *timer = (void *)ctx[0];
	u64 now_ns = bpf_ktime_get_ns();

	return end_timer_delay(KEY_DELAY_TIMER, (u64)timer->function,
			       (bpf_jiffies64() - timer->expires) * cfg.jiffy_ns, now_ns);
}

#endif
#endif
