//! Alerts of `irqlab watch`: rules on the figures of contexts, such as `irq[name=eth0].rate > 50k for 2s`. The syntax
//! and the columns of the table are public. This module decides; [`commands`](super::commands) executes `--run`.

use std::collections::BTreeMap;
use std::str::FromStr;

use attribution::{Context, ContextKind};
use lab::handlers::{ContextRates, Rates};
use record::{Columns, Table, column};

use super::figure::{Figure, Measured};
use crate::options::{any_duration, ns};

/// Maximum length of a rule, characters.
const RULE_CHARS_MAX: usize = 200;

/// The CPUs whose figures a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleCpus {
    /// The figures of all CPUs together.
    Together,
    /// The figures of each CPU alone.
    Each,
    One(u32),
}

impl RuleCpus {
    /// Whether the rule is about figures of this CPU; `None` stands for all CPUs together.
    fn include(self, cpu: Option<u32>) -> bool {
        match self {
            RuleCpus::Together => cpu.is_none(),
            RuleCpus::Each => cpu.is_some(),
            RuleCpus::One(number) => cpu == Some(number),
        }
    }
}

/// A rule of `--alert`.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// The rule as the user typed it.
    text: String,
    /// `None`: contexts of any kind.
    kind: Option<ContextKind>,
    name: Option<String>,
    number: Option<u32>,
    cpus: RuleCpus,
    figure: Figure,
    /// Whether figures above the limit break the rule. If not, figures below it do.
    is_upper: bool,
    limit: f64,
    /// How long a figure must be beyond the limit, ns. 0: one interval.
    hold_ns: u64,
}

impl FromStr for Rule {
    type Err = String;

    /// Parses `KIND[KEY=VALUE,...].FIGURE > LIMIT for TIME`. The part in brackets and `for TIME` are optional.
    fn from_str(text: &str) -> Result<Rule, String> {
        let example = "as in 'irq[name=eth0].rate > 50k for 2s'";
        if text.chars().count() > RULE_CHARS_MAX || text.chars().any(char::is_control) {
            return Err(format!("a rule has at most {RULE_CHARS_MAX} characters on one line"));
        }
        // A name may contain < and >.
        let filter_end = text.find(']').unwrap_or(0);
        let sign = text[filter_end..].find(['<', '>']).map(|offset| filter_end + offset);
        let sign = sign.ok_or_else(|| format!("a rule has > or < before its limit, {example}"))?;
        let (path, limit) = (text[..sign].trim(), text[sign + 1..].trim());
        let (limit, hold_ns) = match limit.split_once(" for ") {
            Some((limit, time)) => (limit.trim(), ns(any_duration(time.trim())?)),
            None => (limit, 0),
        };
        let (context, figure) = match path.rsplit_once(']') {
            Some((context, rest)) => (
                format!("{context}]"),
                rest.strip_prefix('.')
                    .ok_or_else(|| format!("a figure follows the ], {example}"))?,
            ),
            None => {
                let parts = path.split_once('.');
                let (kind, figure) =
                    parts.ok_or_else(|| format!("a rule is KIND.FIGURE > LIMIT, {example}"))?;
                (kind.to_owned(), figure)
            }
        };
        let known = Figure::ALL.iter().find(|(word, _)| *word == figure.trim());
        let (_, figure) = *known.ok_or_else(|| {
            let allowed = Figure::ALL.map(|(word, _)| word).join(", ");
            format!("{:?} is no figure: allowed are {allowed}", figure.trim())
        })?;
        let rule = Rule {
            text: text.trim().to_owned(),
            kind: None,
            name: None,
            number: None,
            cpus: RuleCpus::Together,
            figure,
            is_upper: &text[sign..=sign] == ">",
            limit: figure.limit(limit)?,
            hold_ns,
        };
        rule.with_context(&context)
    }
}

impl Rule {
    /// The rule for the contexts `KIND[KEY=VALUE,...]`, or `KIND`.
    fn with_context(mut self, context: &str) -> Result<Rule, String> {
        let (kind, filter) = match context.split_once('[') {
            Some((kind, filter)) => (kind.trim(), Some(filter.trim_end_matches(']'))),
            None => (context.trim(), None),
        };
        if kind != "any" {
            // `watch` measures no functions that the kernel calls back.
            let kinds = || {
                let is_callback = |kind: &ContextKind| ContextKind::CALLBACKS.contains(kind);
                ContextKind::ALL.into_iter().filter(move |kind| !is_callback(kind))
            };
            let known = kinds().find(|known| known.label() == kind);
            self.kind = Some(known.ok_or_else(|| {
                let allowed: Vec<&str> = kinds().map(ContextKind::label).collect();
                let allowed = allowed.join(", ");
                format!("{kind:?} is no kind of context: allowed are any, {allowed}")
            })?);
        }
        let Some(filter) = filter else { return Ok(self) };
        for pair in filter.split(',') {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(format!("{pair:?} is no KEY=VALUE"));
            };
            let number = || value.parse().map_err(|_| format!("{value:?} is no number"));
            match key.trim() {
                "name" => self.name = Some(value.to_owned()),
                "number" => self.number = Some(number()?),
                "cpu" if value == "all" => self.cpus = RuleCpus::Together,
                "cpu" if value == "each" => self.cpus = RuleCpus::Each,
                "cpu" => self.cpus = RuleCpus::One(number()?),
                other => return Err(format!("{other:?} is no key: allowed are name, number, cpu")),
            }
        }
        Ok(self)
    }

    /// The figure of the rates, if the rule is about their context and the figure is beyond the limit. `None` also if
    /// the context has no such figure.
    fn broken_by(&self, rates: &ContextRates) -> Option<Measured> {
        let Context { kind, number, name } = &rates.context;
        let is_about = self.cpus.include(rates.cpu)
            && self.kind.is_none_or(|wanted| wanted == *kind)
            && self.number.is_none_or(|wanted| wanted == *number)
            && self.name.as_ref().is_none_or(|wanted| wanted == name);
        if !is_about {
            return None;
        }
        let measured = self.figure.measured(rates)?;
        let is_beyond = if self.is_upper {
            // An upper bound does not tell whether the figure is above any limit.
            !measured.is_upper_bound && measured.value > self.limit
        } else {
            measured.value < self.limit
        };
        is_beyond.then_some(measured)
    }
}

/// A context that breaks a rule since some intervals.
#[derive(Clone, Debug, PartialEq)]
pub struct Breach {
    rule: Rule,
    context: Context,
    /// `None`: all CPUs together.
    cpu: Option<u32>,
    /// Its figure in the last interval.
    measured: Measured,
    /// Time since the context started to break the rule, in whole intervals, ns.
    held_ns: u64,
    /// Whether `held_ns` has reached the rule's time.
    pub is_firing: bool,
}

impl Breach {
    /// The context in words.
    pub fn context(&self) -> String {
        let cpu = self.cpu.map_or(String::new(), |cpu| format!(" on CPU {cpu}"));
        format!("{} {}{cpu}", self.context.kind.label(), self.context.name)
    }

    /// The figure in words.
    pub fn value(&self) -> String {
        self.rule.figure.text(self.measured)
    }

    /// The rule as the user typed it.
    pub fn rule(&self) -> &str {
        &self.rule.text
    }
}

/// A change in the last interval.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A context has now broken the rule for the rule's time.
    Fired(Breach),
    /// A breach that had fired is over.
    Ended(Breach),
}

/// The state of all rules. Its breaches have the order of rules and contexts.
#[derive(Debug, Default)]
pub struct Alerts {
    rules: Vec<Rule>,
    breaches: BTreeMap<(usize, Context, Option<u32>), Breach>,
    /// How often each rule has fired.
    fired_counts: Vec<u64>,
}

impl Alerts {
    /// Alerts for `rules`. A rule that is given twice counts once.
    pub fn new(rules: &[Rule]) -> Alerts {
        let mut unique: Vec<Rule> = Vec::new();
        for rule in rules {
            if !unique.contains(rule) {
                unique.push(rule.clone());
            }
        }
        let fired_counts = vec![0; unique.len()];
        Alerts { rules: unique, breaches: BTreeMap::new(), fired_counts }
    }

    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether a rule has fired since the start.
    pub fn have_fired(&self) -> bool {
        self.fired_counts.iter().any(|count| *count > 0)
    }

    /// The present breaches, whether or not they fire.
    pub fn breaches(&self) -> impl Iterator<Item = &Breach> {
        self.breaches.values()
    }

    /// Each rule with how often it has fired, and how many contexts make it fire now.
    pub fn counts(&self) -> impl Iterator<Item = (&str, u64, usize)> {
        self.rules.iter().zip(&self.fired_counts).enumerate().map(|(index, (rule, fired))| {
            let firing =
                self.breaches.iter().filter(|((of, ..), breach)| *of == index && breach.is_firing);
            (rule.text.as_str(), *fired, firing.count())
        })
    }

    /// Applies the rules to the rates of an interval. Returns what has changed.
    pub fn update(&mut self, rates: &Rates) -> Vec<Change> {
        let mut before = std::mem::take(&mut self.breaches);
        let mut changes = Vec::new();
        for (index, rule) in self.rules.iter().enumerate() {
            for context in &rates.contexts {
                let Some(measured) = rule.broken_by(context) else { continue };
                let key = (index, context.context.clone(), context.cpu);
                let (was_firing, held_ns) = before
                    .remove(&key)
                    .map_or((false, 0), |breach| (breach.is_firing, breach.held_ns));
                let held_ns = held_ns.saturating_add(rates.length_ns);
                let breach = Breach {
                    rule: rule.clone(),
                    context: context.context.clone(),
                    cpu: context.cpu,
                    measured,
                    held_ns,
                    // A measured interval may be a little shorter than `--interval`.
                    is_firing: held_ns.saturating_add(rates.length_ns / 20) >= rule.hold_ns,
                };
                if breach.is_firing && !was_firing {
                    self.fired_counts[index] += 1;
                    changes.push(Change::Fired(breach.clone()));
                }
                self.breaches.insert(key, breach);
            }
        }
        let ended = before.into_values().filter(|breach| breach.is_firing);
        changes.extend(ended.map(Change::Ended));
        changes
    }

    /// Table `alerts`: the contexts that break a rule.
    pub fn table(&self) -> Table {
        let columns: Columns<'_, &Breach> = Columns::all([
            column("rule", "The rule, as it was given.")
                .priority(100)
                .uncut()
                .key()
                .text(|breach: &&Breach| breach.rule.text.clone()),
            column("cpu", "CPU, or all.").priority(60).key().text(|breach: &&Breach| {
                breach.cpu.map_or_else(|| "all".to_owned(), |cpu| cpu.to_string())
            }),
            column("kind", "Kind of the context.")
                .priority(90)
                .key()
                .text(|breach: &&Breach| breach.context.kind.label()),
            column("number", "Number of the context.")
                .priority(50)
                .key()
                .uint(|breach: &&Breach| breach.context.number),
            column("name", "Name of the context.")
                .priority(95)
                .key()
                .text(|breach: &&Breach| breach.context.name.clone()),
            column(
                "value",
                "Its figure in the interval, in the unit of the rule's figure: rate per second, cpu as a part of \
                 CPU time, mean, p99 and max in ns.",
            )
            .bound("is_upper_bound", "<")
            .detail()
            .real(|breach: &&Breach| breach.measured.value),
            column(
                "is_upper_bound",
                "Whether value is an upper bound, because the figure is below the detection limit.",
            )
            .detail()
            .bool(|breach: &&Breach| breach.measured.is_upper_bound),
            column("figure", "value, with its unit.")
                .priority(85)
                .text(|breach: &&Breach| breach.value()),
            column("held_ns", "How long it has been beyond the limit, in whole intervals.")
                .shown_as("held", 80)
                .uint(|breach: &&Breach| breach.held_ns),
            column("is_firing", "Whether that is as long as the rule says.")
                .shown_as("fires", 92)
                .bool(|breach: &&Breach| breach.is_firing),
        ]);
        columns.table("alerts", "Contexts that break a rule of --alert.", self.breaches())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::handlers::Timing;
    use lab::handlers::rates::SelfTimes;

    fn rule(text: &str) -> Rule {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_rule_has_a_context_a_figure_a_limit_and_a_time() {
        let parsed = rule("irq[name=virtio1-req.0,number=36,cpu=1].rate > 50k for 2s");
        let expected = Rule {
            text: "irq[name=virtio1-req.0,number=36,cpu=1].rate > 50k for 2s".to_owned(),
            kind: Some(ContextKind::HardIrq),
            name: Some("virtio1-req.0".to_owned()),
            number: Some(36),
            cpus: RuleCpus::One(1),
            figure: Figure::Rate,
            is_upper: true,
            limit: 50_000.0,
            hold_ns: 2_000_000_000,
        };
        assert_eq!(parsed, expected);
        let short = rule("any.cpu>20%");
        assert_eq!((short.kind, short.limit, short.hold_ns), (None, 0.2, 0));
        assert_eq!(short.cpus, RuleCpus::Together);
        assert_eq!(rule("softirq[name=NET_RX].max < 1.5ms").limit, 1_500_000.0);
        assert!(!rule("vector.mean < 3us").is_upper);
        assert_eq!(rule("irq[name=a>b.c].rate > 2M").name.as_deref(), Some("a>b.c"));
    }

    #[test]
    fn what_is_no_rule_is_refused_with_what_is_allowed() {
        for (text, words) in [
            ("", "> or <"),
            ("irq.rate", "> or <"),
            ("irq > 5", "KIND.FIGURE"),
            ("door.rate > 5", "allowed are any, irq"),
            ("irq.length > 5", "allowed are rate, cpu"),
            ("irq.rate > fast", "events per second"),
            ("irq.rate > inf", "events per second"),
            ("irq.cpu > 20", "as in 20%"),
            ("irq.mean > 5 parsecs", "a unit"),
            ("irq[name].rate > 5", "KEY=VALUE"),
            ("irq[colour=red].rate > 5", "allowed are name"),
            ("irq[cpu=x].rate > 5", "no number"),
            ("irq[name=a]rate > 5", "follows the ]"),
            ("irq.rate > 5 for ever", "a unit"),
            (&format!("irq[name={}].rate > 5", "x".repeat(300)), "at most 200"),
        ] {
            let error = text.parse::<Rule>().unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    fn rates(rate_hz: f64, mean_ns: Option<f64>) -> Rates {
        let context = Context { kind: ContextKind::HardIrq, number: 36, name: "eth0".to_owned() };
        let times = Some(SelfTimes { mean_ns, cpu_ratio: 0.1, ..SelfTimes::default() });
        let rates_on = |cpu| ContextRates {
            cpu,
            context: context.clone(),
            timing: Timing::Probes,
            count: 1,
            rate_hz,
            times,
        };
        let contexts = vec![rates_on(None), rates_on(Some(0))];
        Rates { length_ns: 1_000_000_000, contexts, ..Rates::default() }
    }

    #[test]
    fn a_rule_fires_once_when_it_was_broken_long_enough_and_ends_when_it_is_not() {
        let twice = rule("irq.rate > 50 for 2s");
        let mut alerts = Alerts::new(&[twice.clone(), twice, rule("irq.mean > 1us")]);
        assert_eq!(alerts.counts().count(), 2);
        assert_eq!(alerts.update(&rates(60.0, None)), []);
        assert_eq!(alerts.breaches().count(), 1, "of all CPUs together");
        let mut each = Alerts::new(&[rule("irq[cpu=each].rate > 50"), rule("irq[cpu=1].rate > 5")]);
        let changes = each.update(&rates(60.0, None));
        let [Change::Fired(breach)] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!(breach.context(), "irq eth0 on CPU 0");
        let changes = alerts.update(&rates(70.0, None));
        let [Change::Fired(breach)] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!((breach.context(), breach.held_ns), ("irq eth0".to_owned(), 2_000_000_000));
        assert!(breach.value().starts_with("70"), "{}", breach.value());
        assert_eq!(alerts.update(&rates(80.0, None)), []);
        assert_eq!(alerts.counts().next(), Some(("irq.rate > 50 for 2s", 1, 1)));
        let table = alerts.table();
        assert_eq!((table.name.as_str(), table.rows().len()), ("alerts", 1));
        // Not before its time has passed, but for what an interval may lack.
        let mut later =
            Alerts::new(&[rule("irq.rate > 50 for 1400ms"), rule("irq.rate > 50 for 1010ms")]);
        later.update(&rates(60.0, None));
        let firing: Vec<usize> = later.counts().map(|(_, _, firing)| firing).collect();
        assert_eq!(firing, [0, 1]);
        // A break starts the time again.
        assert!(matches!(alerts.update(&rates(50.0, None))[..], [Change::Ended(_)]));
        assert_eq!(alerts.update(&rates(60.0, None)), []);
        assert!(alerts.have_fired());
        // An absent mean breaks nothing.
        let changes = alerts.update(&rates(0.0, Some(2e3)));
        assert!(
            matches!(&changes[..], [Change::Fired(breach)] if breach.rule() == "irq.mean > 1us")
        );
    }

    #[test]
    fn a_figure_below_its_detection_limit_breaks_a_rule_only_by_its_upper_bound() {
        let with_error = |mean_ns: f64| {
            let mut rates = rates(1.0, Some(mean_ns));
            for context in &mut rates.contexts {
                let times = context.times.as_mut().unwrap();
                (times.overhead_error_ns, times.cpu_error_ratio) = (Some(300.0), Some(0.02));
            }
            rates
        };
        let found = |text: &str, mean_ns: f64| -> Vec<String> {
            let changes = Alerts::new(&[rule(text)]).update(&with_error(mean_ns));
            let fired = changes.into_iter().map(|change| match change {
                Change::Fired(breach) => breach.value(),
                Change::Ended(breach) => panic!("{breach:?}"),
            });
            fired.collect()
        };
        // Below the limit, the mean may be 0: it is above nothing.
        assert_eq!(found("irq.mean > 150ns", 200.0), [""; 0]);
        assert_eq!(found("irq.mean > 150ns", 400.0), ["400 ns in the mean"]);
        assert_eq!(found("irq.mean < 600ns", 200.0), ["<500 ns in the mean"]);
        assert_eq!(found("irq.mean < 400ns", 200.0), [""; 0]);
        assert_eq!(found("irq.mean < 1us", -34.9), ["<265 ns in the mean"]);
        assert_eq!(found("irq.mean < 1us", -400.0), [""; 0]);
        assert_eq!(found("irq.cpu > 5%", 200.0), [""; 0]);
        assert_eq!(found("irq.cpu < 20%", 200.0), ["<12.0 % of CPU time"]);
        assert_eq!(found("irq.cpu > 5%", 400.0), ["10.0 % of CPU time"]);
        let mut alerts = Alerts::new(&[rule("irq.mean < 1us")]);
        alerts.update(&with_error(200.0));
        let table = alerts.table();
        let flag = table.get(&table.rows()[0], "is_upper_bound");
        assert_eq!(flag, Some(&record::Value::Bool(true)));
        table.check_display().unwrap();
    }
}
