use crate::naive::Naive;
use machine::predict::{
    Branch, BranchKind, DirectionModel, EntriesModel, HistoryModel, Prediction, Predictor,
    PredictorModel, TableModel, TageModel, TournamentModel, TwoLevelModel,
};
use machine::{ModelError, VirtualAddress};
use proptest::prelude::*;

fn with(direction: DirectionModel) -> PredictorModel {
    let btb = Some(TableModel { entries: 64, ways: 4 });
    PredictorModel {
        direction,
        btb,
        btb_first: None,
        btb_by_lines: false,
        return_stack_entries: Some(8),
        indirect: None,
        indirect_by_directions: false,
    }
}

fn bimodal() -> DirectionModel {
    DirectionModel::Bimodal(EntriesModel { entries: 1024 })
}

fn gshare() -> DirectionModel {
    DirectionModel::Gshare(HistoryModel { entries: 4096, history_bits: 12 })
}

fn tournament() -> DirectionModel {
    DirectionModel::Tournament(TournamentModel {
        local_entries: 1024,
        local_history_bits: 10,
        global_history_bits: 12,
    })
}

fn two_level() -> DirectionModel {
    DirectionModel::TwoLevel(TwoLevelModel { entries: 512, ways: 16, history_bits: 4 })
}

fn tage() -> DirectionModel {
    DirectionModel::Tage(TageModel {
        base_entries: 4096,
        tables: 6,
        table_entries: 1024,
        tag_bits: 11,
        history_min: 4,
        history_max: 200,
        long_table_entries: None,
        history_of_taken: false,
        allocated: 1,
        learns_weak: false,
    })
}

/// A branch of `bytes` bytes without a target in the instruction. The branch leads to `next`.
fn indirect(kind: BranchKind, address: u64, bytes: u64, next: u64) -> Branch {
    let (address, next) = (VirtualAddress(address), VirtualAddress(next));
    Branch { address, kind, fall_through: address.plus(bytes), target: None, next }
}

/// A branch of 5 bytes with the target in the instruction, which it leads to.
fn direct(kind: BranchKind, address: u64, target: u64) -> Branch {
    Branch { target: Some(VirtualAddress(target)), ..indirect(kind, address, 5, target) }
}

/// A conditional branch of 2 bytes.
fn conditional_to(target: u64, address: u64, taken: bool) -> Branch {
    let next = if taken { target } else { address + 2 };
    let branch = indirect(BranchKind::Conditional, address, 2, next);
    Branch { target: Some(VirtualAddress(target)), ..branch }
}

fn conditional(address: u64, taken: bool) -> Branch {
    conditional_to(address - 64, address, taken)
}

/// The mispredictions in the second half of `branches`.
fn wrong(direction: DirectionModel, branches: &[(u64, bool)]) -> usize {
    let mut predictor = Predictor::new(&with(direction));
    let met = branches.iter().map(|(address, taken)| {
        usize::from(predictor.step(&conditional(*address, *taken)) == Prediction::Mispredicted)
    });
    met.collect::<Vec<_>>()[branches.len() / 2..].iter().sum()
}

/// A branch that is taken except each `length`th time.
fn rounds(length: usize, rounds: usize) -> Vec<(u64, bool)> {
    (0..length * rounds).map(|step| (0x1000, step % length != length - 1)).collect()
}

#[test]
fn contract_1_an_alternating_branch_is_learnt_by_history_alone() {
    let branches = rounds(2, 1_000);
    // The two bits go back and forth between both sides: never right, or half the time.
    assert!(wrong(bimodal(), &branches) >= 500);
    for direction in [gshare(), tournament(), two_level(), tage()] {
        assert_eq!(wrong(direction.clone(), &branches), 0, "{direction:?}");
    }
}

#[test]
fn contract_2_a_loop_is_wrong_once_a_round_if_it_is_longer_than_the_history() {
    // One misprediction a round, in the second half of 400 rounds.
    assert_eq!(wrong(bimodal(), &rounds(10, 400)), 200);
    assert_eq!(wrong(gshare(), &rounds(10, 400)), 0);
    assert_eq!(wrong(tournament(), &rounds(8, 400)), 0);
    assert_eq!(wrong(gshare(), &rounds(40, 400)), 200);
    assert_eq!(wrong(tournament(), &rounds(40, 400)), 200);
    assert_eq!(wrong(tage(), &rounds(40, 400)), 0);
}

#[test]
fn contract_2_own_counters_keep_branches_of_the_same_history_apart() {
    // After any four outcomes of its own, each branch has another next one; in one table of counters by
    // local history they are each other's noise.
    let branches: Vec<(u64, bool)> = (0..4_000)
        .flat_map(|step| {
            [(0x1000, step % 3 == 0), (0x1010, step % 3 != 0), (0x1020, step % 2 == 0)]
        })
        .collect();
    assert_eq!(wrong(two_level(), &branches), 0);
    // A loop of five rounds is the longest that four bits know.
    assert_eq!(wrong(two_level(), &rounds(5, 400)), 0);
    assert_eq!(wrong(two_level(), &rounds(6, 400)), 200);
}

#[test]
fn contract_2_a_branch_without_a_place_is_predicted_by_its_direction() {
    let mut predictor = Predictor::new(&with(two_level()));
    let forward = |address: u64, taken: bool| conditional_to(address + 64, address, taken);
    // Never taken: right from the first time on, however many there are.
    let wrong = (0..10_000).filter(|step| {
        predictor.step(&forward(0x1000 + 16 * (step % 2_000), false)) == Prediction::Mispredicted
    });
    assert_eq!(wrong.count(), 0);
    assert_eq!(predictor.step(&forward(0x1000, true)), Prediction::Mispredicted);
    assert_ne!(predictor.step(&forward(0x1000, true)), Prediction::Mispredicted);
}

#[test]
fn contract_3_a_branch_that_follows_two_others_is_learnt_by_the_history_of_all() {
    let mut branches = Vec::new();
    let mut random: u64 = 1;
    for _ in 0..4_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (first, second) = (random >> 62 & 1 == 1, random >> 61 & 1 == 1);
        branches.extend([(0x1000, first), (0x1010, second), (0x1020, first ^ second)]);
    }
    // Two of 3 branches are random: 4,000 in the second half, and half of them are mispredicted.
    let dice = 2_000;
    let third = |direction| wrong(direction, &branches).saturating_sub(dice - 200);
    assert!(third(bimodal()) > 800, "{}", third(bimodal()));
    assert!(third(gshare()) < 400, "{}", third(gshare()));
    assert!(third(tournament()) < 700, "{}", third(tournament()));
    assert!(third(tage()) < 500, "{}", third(tage()));
}

#[test]
fn contract_4_static_rules_see_only_where_a_branch_leads() {
    let backward = |taken| [conditional(0x1000, taken)];
    let forward = |taken| [conditional_to(0x2000, 0x1000, taken)];
    let right = |direction, branches: [Branch; 1]| {
        Predictor::new(&with(direction)).step(&branches[0]) != Prediction::Mispredicted
    };
    for taken in [false, true] {
        for branch in [backward(taken), forward(taken)] {
            assert_eq!(right(DirectionModel::Taken, branch), taken);
            assert_eq!(right(DirectionModel::NotTaken, branch), !taken);
        }
        assert_eq!(right(DirectionModel::BackwardTaken, backward(taken)), taken);
        assert_eq!(right(DirectionModel::BackwardTaken, forward(taken)), !taken);
    }
}

/// Calls to `depth` and back, all from different places. Returns how many returns were
/// mispredicted.
fn nested(predictor: &mut Predictor, depth: u64) -> usize {
    let call_site = |level: u64| 0x1000 * (level + 1);
    for level in 0..depth {
        predictor.step(&direct(BranchKind::Call, call_site(level), call_site(level + 1)));
    }
    let returns = (0..depth).rev().map(|level| {
        let (address, next) = (call_site(level + 1) + 0x100, call_site(level) + 5);
        indirect(BranchKind::Return, address, 1, next)
    });
    returns.filter(|branch| predictor.step(branch) == Prediction::Mispredicted).count()
}

#[test]
fn contract_5_returns_are_foreseen_as_deep_as_the_stack_is() {
    let mut predictor = Predictor::new(&with(bimodal()));
    for (depth, wrong) in [(1, 0), (8, 0), (9, 1), (20, 12), (8, 0)] {
        assert_eq!(nested(&mut predictor, depth), wrong, "{depth} calls, 8 entries");
    }
}

#[test]
fn contract_6_a_jump_is_late_until_its_target_is_known() {
    let mut predictor = Predictor::new(&with(bimodal()));
    let jump = |address: u64, next: u64| direct(BranchKind::Jump, address, next);
    // Five branches 16 bytes apart share a set of four ways: the least recently used is evicted.
    let mut round =
        || (0..5).map(|index| predictor.step(&jump(index * 16, 0x9000))).collect::<Vec<_>>();
    assert_eq!((round(), round()), (vec![Prediction::BtbMiss; 5], vec![Prediction::BtbMiss; 5]));
    let mut four =
        || (0..4).map(|index| predictor.step(&jump(index * 16, 0x9000))).collect::<Vec<_>>();
    four();
    assert_eq!(four(), [Prediction::Predicted; 4]);
}

#[test]
fn contract_7_an_indirect_branch_is_known_by_its_last_target_or_by_history() {
    let plain = with(bimodal());
    let by_history = HistoryModel { entries: 512, history_bits: 9 };
    let by_history = PredictorModel { indirect: Some(by_history), ..plain.clone() };
    // Three alternating targets.
    let wrong = |model: &PredictorModel| {
        let mut predictor = Predictor::new(model);
        let branches = (0..300u64).map(|step| {
            let (address, next) = (0x1000, 0x2000 + 0x123 * (step % 3));
            indirect(BranchKind::IndirectJump, address, 2, next)
        });
        branches
            .map(|branch| predictor.step(&branch))
            .skip(150)
            .fold(0, |wrong, met| wrong + u32::from(met == Prediction::Mispredicted))
    };
    assert_eq!((wrong(&plain), wrong(&by_history)), (150, 0));
}

fn direction() -> impl Strategy<Value = DirectionModel> {
    let entries = (0u32..8).prop_map(|log| 1 << log);
    prop_oneof![
        Just(DirectionModel::Taken),
        Just(DirectionModel::NotTaken),
        Just(DirectionModel::BackwardTaken),
        entries.clone().prop_map(|entries| DirectionModel::Bimodal(EntriesModel { entries })),
        (entries.clone(), 0u32..9).prop_map(|(entries, history_bits)| {
            DirectionModel::Gshare(HistoryModel { entries, history_bits })
        }),
        (entries.clone(), 1u32..8, 1u32..9).prop_map(
            |(local_entries, local_history_bits, global_history_bits)| {
                DirectionModel::Tournament(TournamentModel {
                    local_entries,
                    local_history_bits,
                    global_history_bits,
                })
            }
        ),
        (1u32..5, 0u32..4, 1u32..6).prop_map(|(ways, sets_log, history_bits)| {
            DirectionModel::TwoLevel(TwoLevelModel {
                entries: ways << sets_log,
                ways,
                history_bits,
            })
        }),
        (entries, 1u32..6, 1u32..6, 4u32..10, 2u32..6).prop_map(
            |(base_entries, tables, log, tag_bits, history_min)| {
                let table_entries = 1 << log;
                let history_max = if tables == 1 { history_min } else { history_min << tables };
                DirectionModel::Tage(TageModel {
                    base_entries,
                    tables,
                    table_entries,
                    tag_bits,
                    history_min,
                    history_max,
                    long_table_entries: None,
                    history_of_taken: false,
                    allocated: 1,
                    learns_weak: false,
                })
            }
        ),
    ]
}

fn model() -> impl Strategy<Value = PredictorModel> {
    let table = (1u32..5, 0u32..4)
        .prop_map(|(ways, sets_log)| TableModel { entries: ways << sets_log, ways });
    let history = (0u32..7, 0u32..9)
        .prop_map(|(log, history_bits)| HistoryModel { entries: 1 << log, history_bits });
    let parts = (prop::option::of(table), prop::option::of(1u32..6), prop::option::of(history));
    (direction(), parts).prop_map(|(direction, (btb, return_stack_entries, indirect))| {
        PredictorModel {
            direction,
            btb,
            btb_first: None,
            btb_by_lines: false,
            return_stack_entries,
            indirect,
            indirect_by_directions: false,
        }
    })
}

/// Branches at few addresses, so that they recur.
fn branch() -> impl Strategy<Value = Branch> {
    let kind = prop_oneof![
        5 => Just(BranchKind::Conditional),
        1 => Just(BranchKind::Jump),
        2 => Just(BranchKind::Call),
        1 => Just(BranchKind::IndirectJump),
        1 => Just(BranchKind::IndirectCall),
        2 => Just(BranchKind::Return),
    ];
    (kind, 100u64..140, 100u64..108, any::<bool>()).prop_map(|(kind, address, other, taken)| {
        let next = match kind {
            BranchKind::Conditional if !taken => address + 2,
            // A return leads to the instruction after some call, sometimes the right one.
            BranchKind::Return => other + 2,
            _ => other * 7,
        };
        let has_target =
            matches!(kind, BranchKind::Conditional | BranchKind::Jump | BranchKind::Call);
        let target = has_target.then_some(VirtualAddress(other * 7));
        Branch { target, ..indirect(kind, address, 2, next) }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn each_branch_is_foreseen_as_by_the_naive_one(
        model in model(),
        few in prop::collection::vec(branch(), 1..30),
        order in prop::collection::vec(any::<prop::sample::Index>(), 1..600),
    ) {
        prop_assert_eq!(model.check("predictor"), Ok(()));
        let (mut predictor, mut naive) = (Predictor::new(&model), Naive::default());
        for (at, index) in order.iter().enumerate() {
            let branch = index.get(&few);
            prop_assert_eq!(
                predictor.step(branch), naive.step(&model, branch), "branch {}: {:?}", at, branch
            );
        }
    }
}

#[test]
fn what_cannot_be_built_is_refused_by_name() {
    let refused = |change: fn(&mut PredictorModel)| {
        let mut model = with(bimodal());
        model.indirect = Some(HistoryModel { entries: 4, history_bits: 2 });
        assert_eq!(model.check("predictor"), Ok(()));
        change(&mut model);
        let Err(ModelError { field, .. }) = model.check("predictor") else { panic!("{model:?}") };
        field
    };
    assert_eq!(
        refused(|model| model.btb = Some(TableModel { entries: 12, ways: 4 })),
        "predictor.btb.entries"
    );
    assert_eq!(
        refused(|model| model.btb = Some(TableModel { entries: 16, ways: 0 })),
        "predictor.btb.ways"
    );
    assert_eq!(
        refused(|model| model.return_stack_entries = Some(0)),
        "predictor.return_stack_entries"
    );
    assert_eq!(
        refused(|model| model.indirect = Some(HistoryModel { entries: 3, history_bits: 2 })),
        "predictor.indirect.entries"
    );
    assert_eq!(
        refused(|model| {
            model.direction = DirectionModel::Bimodal(EntriesModel { entries: 1000 });
        }),
        "predictor.direction.bimodal.entries"
    );
    assert_eq!(
        refused(|model| {
            model.direction =
                DirectionModel::Gshare(HistoryModel { entries: 1024, history_bits: 40 });
        }),
        "predictor.direction.gshare.history_bits"
    );
    assert_eq!(
        refused(|model| {
            let DirectionModel::Tage(mut tage) = tage() else { unreachable!() };
            tage.history_max = tage.history_min + 2;
            model.direction = DirectionModel::Tage(tage);
        }),
        "predictor.direction.tage.history_max"
    );
}
