//! Makes a rank's sample from its times, its detours and the kernel's marks.

use std::collections::BTreeMap;

use lab::noise::collective::wire::{CAUSES_MAX, INTERRUPTIONS_MAX, PARTS_MAX};
use lab::noise::collective::{Cause, Interruption, StepTimes};
use lab::noise::{
    AttributionParameters, Class, ContextName, Gap, IDLE, Mark, Part, kind_and_name, split,
};

/// Number of places for causes that no kernel event names: the idle task, and parts that are no context. These are fewer.
const UNNAMED_CAUSES_MAX: usize = 16;
/// Number of named causes of a rank that have a place of their own. One more place is for all others together.
const NAMED_CAUSES_MAX: usize = CAUSES_MAX - UNNAMED_CAUSES_MAX - 1;

/// Splits interruptions by the kernel's marks, and collects them.
pub(super) struct Interruptions<'a> {
    /// In the order of time. Empty without tracing.
    marks: &'a [Mark],
    is_traced: bool,
    parameters: AttributionParameters,
    names: &'a [ContextName],
    positions: BTreeMap<Part, u16>,
    pub causes: Vec<Cause>,
    /// Number of named causes that have a place of their own.
    named_count: usize,
    /// The place of all further named causes. `None` if all causes have a place of their own.
    others: Option<u16>,
    /// Number of causes that share the place `others`.
    pub other_cause_count: u64,
    pub found: Vec<Interruption>,
    part_count: usize,
    /// Number of detours that found no room.
    pub lost: u64,
    /// Number of activities in collectives that found no room.
    pub lost_activities: u64,
    /// A buffer for [`split`].
    parts: Vec<(Part, u64)>,
}

impl<'a> Interruptions<'a> {
    /// `marks`: `None` without tracing.
    pub fn new(
        marks: Option<&'a [Mark]>,
        names: &'a [ContextName],
        parameters: AttributionParameters,
    ) -> Interruptions<'a> {
        Interruptions {
            marks: marks.unwrap_or_default(),
            is_traced: marks.is_some(),
            parameters,
            names,
            positions: BTreeMap::new(),
            causes: Vec::new(),
            named_count: 0,
            others: None,
            other_cause_count: 0,
            found: Vec::new(),
            part_count: 0,
            lost: 0,
            lost_activities: 0,
            parts: Vec::new(),
        }
    }

    /// Adds the detours of the computations, and what happened in the collectives between them. `gaps` and `steps` must be
    /// in the order of time.
    pub fn add_all(&mut self, steps: &[StepTimes], gaps: &[Gap]) {
        let mut gaps = gaps.iter().peekable();
        for step in steps {
            while let Some(gap) = gaps.next_if(|gap| gap.start_ns < step.arrival_ns) {
                self.add_detour(*gap);
            }
            self.add_collective(Gap { start_ns: step.arrival_ns, end_ns: step.leave_ns });
        }
    }

    fn add_detour(&mut self, gap: Gap) {
        if self.is_traced {
            self.split(gap);
        } else {
            self.parts = vec![(Part::Unknown, gap.length_ns())];
        }
        self.keep(gap.start_ns, false);
    }

    /// Keeps the kernel's activity in a collective, if there is any.
    fn add_collective(&mut self, gap: Gap) {
        if !self.is_traced {
            return;
        }
        self.split(gap);
        if self.parts.iter().any(|(part, _)| self.is_named(*part)) {
            self.keep(gap.start_ns, true);
        }
    }

    fn split(&mut self, gap: Gap) {
        let first = self.marks.partition_point(|mark| mark.at_ns < gap.start_ns);
        let count = self.marks[first..].partition_point(|mark| mark.at_ns < gap.end_ns);
        self.parts.clear();
        split(gap, &self.marks[first..first + count], self.parameters, &mut self.parts);
    }

    /// Whether a kernel event names the part. The idle task runs while the rank waits, so it is no cause.
    fn is_named(&self, part: Part) -> bool {
        let is_idle = |number: u32| {
            self.names.get(number as usize) == Some(&ContextName::Task(IDLE.to_owned()))
        };
        part.class() == Class::Named && !matches!(part, Part::Context(number) if is_idle(number))
    }

    /// Keeps the parts of the buffer as an interruption.
    fn keep(&mut self, start_ns: u64, in_collective: bool) {
        let has_room =
            self.found.len() < INTERRUPTIONS_MAX && self.part_count + self.parts.len() <= PARTS_MAX;
        if !has_room {
            if in_collective {
                self.lost_activities += 1;
            } else {
                self.lost += 1;
            }
            return;
        }
        let parts = std::mem::take(&mut self.parts);
        let coded =
            parts.iter().map(|(part, length_ns)| (self.position(*part), *length_ns)).collect();
        self.part_count += parts.len();
        self.found.push(Interruption { start_ns, in_collective, parts: coded });
        self.parts = parts;
    }

    /// The position of a cause. Named causes beyond [`NAMED_CAUSES_MAX`] share one place.
    fn position(&mut self, part: Part) -> u16 {
        if let Some(position) = self.positions.get(&part) {
            return *position;
        }
        let position = if self.is_named(part) && self.named_count == NAMED_CAUSES_MAX {
            self.position_of_others()
        } else {
            self.add(part)
        };
        self.positions.insert(part, position);
        position
    }

    /// The place that named causes without room share.
    fn position_of_others(&mut self) -> u16 {
        self.other_cause_count += 1;
        let causes = &mut self.causes;
        *self.others.get_or_insert_with(|| {
            let (kind, name) = ("other".to_owned(), "causes without room".to_owned());
            causes.push(Cause { is_named: true, kind, name });
            (causes.len() - 1) as u16
        })
    }

    /// Adds a cause with a place of its own, and returns the place.
    fn add(&mut self, part: Part) -> u16 {
        let (kind, name) = kind_and_name(part, self.names).map_or_else(
            || ("remainder".to_owned(), "without a name".to_owned()),
            |(kind, name)| (kind.to_owned(), name),
        );
        let is_named = self.is_named(part);
        self.named_count += usize::from(is_named);
        self.causes.push(Cause { is_named, kind, name });
        (self.causes.len() - 1) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::noise::What;

    const STEPS: [StepTimes; 2] = [
        StepTimes { start_ns: 0, arrival_ns: 1_000, leave_ns: 1_200 },
        StepTimes { start_ns: 1_200, arrival_ns: 2_500, leave_ns: 2_600 },
    ];

    fn names() -> Vec<ContextName> {
        ["make", IDLE].map(|name| ContextName::Task(name.to_owned())).to_vec()
    }

    #[test]
    fn detours_and_activity_in_collectives_have_their_causes() {
        let what = [
            (1_050, What::SwitchTo(0)),
            (1_150, What::SwitchBack),
            (1_300, What::SwitchTo(0)),
            (1_500, What::SwitchBack),
        ];
        let marks = what.map(|(at_ns, what)| Mark { at_ns, what });
        let names = names();
        let mut found = Interruptions::new(Some(&marks), &names, AttributionParameters::default());
        found.add_all(&STEPS, &[Gap { start_ns: 1_290, end_ns: 1_520 }]);
        let kinds: Vec<(u64, bool, u64)> = found
            .found
            .iter()
            .map(|found| (found.start_ns, found.in_collective, found.length_ns()))
            .collect();
        assert_eq!(kinds, [(1_000, true, 200), (1_290, false, 230)]);
        let named_ns = |interruption: &Interruption| {
            let parts = interruption.parts.iter();
            let named = parts.filter(|(cause, _)| found.causes[usize::from(*cause)].is_named);
            named.map(|(_, length_ns)| length_ns).sum::<u64>()
        };
        assert_eq!((named_ns(&found.found[0]), named_ns(&found.found[1])), (100, 200));
    }

    #[test]
    fn a_rank_that_waits_is_not_delayed_by_the_idle_task() {
        let marks = [(1_050, What::SwitchTo(1)), (1_150, What::SwitchBack)]
            .map(|(at_ns, what)| Mark { at_ns, what });
        let names = names();
        let mut found = Interruptions::new(Some(&marks), &names, AttributionParameters::default());
        found.add_all(&STEPS, &[]);
        assert_eq!(found.found, []);
    }

    #[test]
    fn detours_and_activity_without_room_are_counted() {
        let marks = [(1_050, What::SwitchTo(0)), (1_150, What::SwitchBack)]
            .map(|(at_ns, what)| Mark { at_ns, what });
        let names = names();
        let mut found = Interruptions::new(Some(&marks), &names, AttributionParameters::default());
        found.part_count = PARTS_MAX;
        found.add_all(&STEPS, &[Gap { start_ns: 1_290, end_ns: 1_520 }]);
        assert_eq!((found.found.len(), found.lost, found.lost_activities), (0, 1, 1));
    }

    /// The last task with a place of its own is not blamed for tasks that come later.
    #[test]
    fn causes_without_room_share_a_place_that_names_none() {
        let count = CAUSES_MAX as u32 + 5;
        let names: Vec<ContextName> =
            (0..count).map(|number| ContextName::Task(format!("task{number}"))).collect();
        let mut found = Interruptions::new(Some(&[]), &names, AttributionParameters::default());
        let positions: Vec<u16> =
            (0..count).map(|number| found.position(Part::Context(number))).collect();
        for (number, position) in positions.iter().enumerate() {
            let Cause { is_named, kind, name } = &found.causes[usize::from(*position)];
            let own_name = (number < NAMED_CAUSES_MAX).then(|| format!("task{number}"));
            let expected = own_name.as_deref().unwrap_or("causes without room");
            assert!(*is_named && name == expected, "{number}: {kind} {name}");
        }
        assert_eq!(found.other_cause_count, u64::from(count) - NAMED_CAUSES_MAX as u64);
        // Time without a name stays without a name.
        let entry = found.position(Part::Entry);
        assert!(!found.causes[usize::from(entry)].is_named);
        assert!(found.causes.len() <= CAUSES_MAX, "{}", found.causes.len());
    }

    #[test]
    fn without_marks_detours_have_no_cause() {
        let mut found = Interruptions::new(None, &[], AttributionParameters::default());
        found.add_all(&STEPS, &[Gap { start_ns: 10, end_ns: 30 }]);
        assert_eq!(found.found[0].parts, [(0, 20)]);
        assert!(!found.causes[0].is_named && found.causes[0].name == "unknown");
    }
}
