/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */
/*
 * Delays of timers: from the time at which a timer is due to the start of its function. The timer itself has that time,
 * so no event begins the delay. Rows are as in delays.h; `special` counts timers without a delay.
 */
#ifndef IRQLAB_TIMER_DELAYS_H
#define IRQLAB_TIMER_DELAYS_H

#ifndef IRQLAB_NO_BTF

/*
 * Counts the delay of a timer that starts now. It has none if it was due before the window opened. A negative delay
 * means that another CPU has set the timer again, after the kernel took it from its queue.
 */
static __always_inline void count_timer_delay(struct cpu_state *cpu, u32 key, s64 delay_ns, u64 now_ns)
{
	s64 open_ns = now_ns - cpu->armed_ns;

	if (delay_ns >= 0 && delay_ns <= open_ns)
		count_delay(cpu, key, delay_ns, now_ns);
	else
		count_unjoined_end(cpu, key);
}

/*
 * The time from which the timer may run is its soft expiry. The kernel may wait until the hard expiry for another
 * timer. The base's offset leads from the monotonic clock, which bpf_ktime_get_ns reads, to the clock of the timer.
 */
TRACEPOINT("hrtimer_expire_entry") int hrtimer_delay_ends(u64 *ctx)
{
	struct hrtimer *timer = (void *)ctx[0];
	u64 now_ns = bpf_ktime_get_ns();
	struct cpu_state *cpu = armed_cpu();
	struct events events;
	struct probe_run run;

	if (!cpu)
		return 0;
	start_probe_run(cpu, &run, now_ns);
	read_events_at_exit(cpu->depth, &events);
	count_timer_delay(cpu, KEY_DELAY_HRTIMER, now_ns + timer->base->offset - timer->_softexpires, now_ns);
	end_probe_run(cpu, &run, &events);
	return 0;
}

TRACEPOINT("timer_expire_entry") int timer_delay_ends(u64 *ctx)
{
	struct timer_list *timer = (void *)ctx[0];
	u64 now_ns = bpf_ktime_get_ns();
	struct cpu_state *cpu = armed_cpu();
	struct events events;
	struct probe_run run;

	if (!cpu)
		return 0;
	start_probe_run(cpu, &run, now_ns);
	read_events_at_exit(cpu->depth, &events);
	count_timer_delay(cpu, KEY_DELAY_TIMER, (bpf_jiffies64() - timer->expires) * cfg.jiffy_ns, now_ns);
	end_probe_run(cpu, &run, &events);
	return 0;
}

#endif
#endif
