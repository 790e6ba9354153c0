//! What explorers choose, against brute force on tiny disks and by hand.

mod common;
mod model;

use std::collections::BTreeSet;

use common::{done, drive, receive};
use model::{Move, Script, allowed, description, moves, play};
use powerfail_drive::cache::Description;
use powerfail_drive::explore::{
    Asked, Exhaustive, Explorer, JournalAware, MOST_LOOSE, Material, Outline, Plan, PlanError, Role, Roles, Walk,
    explorers, plan,
};
use powerfail_drive::request::Command;
use powerfail_drive::units::AtomicUnit;
use powerfail_drive::versions::Order;
use powerfail_seed::{Seed, below};
use proptest::prelude::*;

const NAME: &str = "0123456789abcdef";
const BLOCK: u64 = 4096;

fn planned(
    recording: &[u8],
    drive: Description,
    states: u64,
    list: &[&str],
    material: Material,
) -> Result<Plan, PlanError> {
    let outline = Outline::of(recording, drive).expect("a recording");
    let list: Vec<String> = list.iter().map(|name| (*name).to_owned()).collect();
    let explorers = explorers(&list, &outline, material).expect("known names");
    plan(&Asked { recording, name: NAME, drive, seed: Seed(1), states }, &outline, &explorers)
}

/// Whatever an explorer is told of the writes, it may only be wrong about what is worth a state.
fn random_roles(script: &Script, seed: u64) -> Roles {
    let mut roles = Roles::default();
    for request in script.requests.iter().filter(|request| request.command != Command::Flush) {
        for block in request.lba / 8..=(request.lba + request.sectors) / 8 {
            let mut rng = Seed(seed).rng("role", &[request.received, block]);
            let of = below(&mut rng, 3) as u32;
            let role = [
                Role::Descriptor(of),
                Role::LogData(of),
                Role::Commit(of),
                Role::Revoke(of),
                Role::JournalSuperblock,
                Role::Unknown,
                Role::Home,
            ][below(&mut rng, 7) as usize];
            roles.set(request.received, block, role);
        }
    }
    roles
}

/// Plays moves with `mounted` before the move `mounted` and `workload-end` behind the last but `behind` ones.
fn marked(mut moves: Vec<Move>, mounted: usize, behind: usize, sectors: u64, write_cache: bool) -> Script {
    moves.retain(|one| !matches!(one, Move::Mounted));
    let end = moves.len() - behind % (moves.len() / 2 + 1);
    moves.insert(end, Move::WorkloadEnd);
    moves.insert(mounted % (end + 1), Move::Mounted);
    play(&moves, sectors, write_cache)
}

/// Every planned state is one that brute force allows, its digest is the image's, and a second plan is the same.
fn legal(
    script: &Script,
    drive: Description,
    sectors: u64,
    write_cache: bool,
    roles: u64,
) -> Result<(), TestCaseError> {
    let list = ["all", "mkfs", "unmount"];
    let material = || Material { roles: random_roles(script, roles), recipes: Vec::new() };
    let plan = planned(&script.recording, drive, 80, &list, material()).expect("a plan");
    prop_assert_eq!(&plan, &planned(&script.recording, drive, 80, &list, material()).expect("a plan"));
    let unit_sectors = drive.unit.sectors();
    let mut walk = Walk::new(&script.recording, drive).expect("a recording");
    for state in &plan.states {
        let recipe = &state.recipe;
        walk.advance(recipe.cut).expect("in order");
        prop_assert_eq!(walk.history.next_event(), recipe.cut);
        prop_assert_eq!(walk.history.loose().len() as u64, walk.history.loose_fragments());
        prop_assert_eq!(walk.history.digest(&script.recording, &recipe.kept, recipe.order), state.digest);
        let until = script.until(recipe.cut);
        let Some(allowed) = allowed(&until, &drive, sectors, write_cache) else { continue };
        let mut made = vec![vec![0u8; unit_sectors as usize]; allowed.len()];
        for (unit, composition) in walk.history.image(&recipe.kept, recipe.order) {
            let byte = |at: &u64| if *at == 0 { 0 } else { script.recording[*at as usize] };
            made[unit as usize] = composition.0[..unit_sectors as usize].iter().map(byte).collect();
        }
        for (unit, (made, allowed)) in made.iter().zip(&allowed).enumerate() {
            prop_assert!(allowed.contains(made), "{}: {} makes unit {} {:?}", state.explorer, recipe, unit, made);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn every_choice_is_legal_on_sectors(
        moves in moves(4), mounted in 0usize..14, behind in 0usize..14, write_cache: bool, roles: u64,
    ) {
        let script = marked(moves, mounted, behind, 4, write_cache);
        legal(&script, description(AtomicUnit::B512, 100), 4, write_cache, roles)?;
    }

    #[test]
    fn every_choice_is_legal_on_blocks(moves in moves(24), mounted in 0usize..14, behind in 0usize..14, roles: u64) {
        let script = marked(moves, mounted, behind, 24, true);
        legal(&script, description(AtomicUnit::B4096, 100), 24, true, roles)?;
    }

    #[test]
    fn every_choice_is_legal_with_a_cache_that_destages(moves in moves(4), cache in 1u64..3, roles: u64) {
        let script = marked(moves, 0, 0, 4, true);
        legal(&script, description(AtomicUnit::B512, cache), 4, true, roles)?;
    }

    /// With a budget for all of them, `exhaustive` makes every image of every subset at every cut.
    #[test]
    fn exhaustive_makes_all_subsets(moves in moves(4)) {
        let script = marked(moves, 0, 0, 4, true);
        let drive = description(AtomicUnit::B512, 100);
        let plan = planned(&script.recording, drive, 1 << 20, &["exhaustive"], Material::default()).expect("a plan");
        let made: BTreeSet<String> = plan.states.iter().map(|state| state.digest.to_string()).collect();
        let outline = Outline::of(&script.recording, drive).expect("a recording");
        let mut walk = Walk::new(&script.recording, drive).expect("a recording");
        for cut in outline.span().first..=outline.span().last {
            walk.advance(cut).expect("in order");
            let loose = walk.history.loose().len();
            prop_assert_eq!(loose as u32, outline.loose_at(cut));
            if loose == 0 || loose > MOST_LOOSE as usize {
                continue;
            }
            for subset in 0..1u32 << loose {
                let kept: Vec<bool> = (0..loose).map(|bit| subset >> bit & 1 == 1).collect();
                let digest = walk.history.digest(&script.recording, &kept, Order::Receipt);
                prop_assert!(made.contains(&digest.to_string()), "cut {}, subset {:b}", cut, subset);
            }
        }
    }
}

/// The digest at a cut of the state in which exactly those blocks are lost that `lost` names.
fn without(recording: &[u8], drive: Description, cut: u64, lost: &dyn Fn(u64) -> bool) -> String {
    let mut walk = Walk::new(recording, drive).unwrap();
    walk.advance(cut).unwrap();
    let kept: Vec<bool> = walk.history.loose().iter().map(|fragment| !lost(fragment.unit)).collect();
    walk.history.digest(recording, &kept, Order::Receipt).to_string()
}

/// A transaction of a descriptor and three log blocks in blocks 10 to 13, and its commit in 14; one write in place before
/// it. With `barrier` a flush precedes the commit block, which carries FUA; else one flush follows all of it.
fn one_transaction(barrier: bool) -> (Vec<u8>, Roles, u64) {
    let mut drive = drive(64 * BLOCK, true);
    drive.mark("mounted").unwrap();
    done(&mut drive, Command::Write, 40 * BLOCK, BLOCK, false, 1);
    let mut roles = Roles::default();
    for block in 10..14u64 {
        let receipt = receive(&mut drive, Command::Write, block * BLOCK, BLOCK, false, block as u8);
        drive.reply(receipt).unwrap();
        roles.set(receipt, block, if block == 10 { Role::Descriptor(7) } else { Role::LogData(7) });
    }
    if barrier {
        done(&mut drive, Command::Flush, 0, 0, false, 0);
    }
    let commit = receive(&mut drive, Command::Write, 14 * BLOCK, BLOCK, barrier, 14);
    roles.set(commit, 14, Role::Commit(7));
    drive.reply(commit).unwrap();
    let flush = receive(&mut drive, Command::Flush, 0, 0, false, 0);
    let settled = drive.reply(flush).unwrap();
    drive.mark("workload-end").unwrap();
    (drive.close().unwrap().0, roles, settled)
}

#[test]
fn a_commit_that_flies_with_its_log_blocks_loses_each_of_them() {
    let (recording, roles, settled) = one_transaction(false);
    let drive = description(AtomicUnit::B4096, 2048);
    let material = Material { roles, recipes: Vec::new() };
    let plan = planned(&recording, drive, 1000, &["journal-aware"], material).unwrap();
    let images: BTreeSet<String> = plan.states.iter().map(|state| state.digest.to_string()).collect();
    let mut expected = BTreeSet::new();
    let mut expect = |lost: &dyn Fn(u64) -> bool| expected.insert(without(&recording, drive, settled, lost));
    for block in 10..14 {
        expect(&|unit| unit == block);
        expect(&|unit| unit == block || unit == 40);
    }
    expect(&|unit| unit == 14);
    expect(&|unit| unit == 40);
    expect(&|unit| (10..14).contains(&unit));
    expect(&|unit| unit != 40);
    assert_eq!(images, expected, "each kind of state once, and no other");
}

/// Behind a flush no log block is loose when the commit block comes: there is no such state, and none is made.
#[test]
fn a_commit_behind_a_flush_is_lost_whole_or_not_at_all() {
    let (recording, roles, _) = one_transaction(true);
    let drive = description(AtomicUnit::B4096, 2048);
    let outline = Outline::of(&recording, drive).unwrap();
    let explorer = JournalAware::of(&outline, roles.clone());
    assert_eq!(explorer.journal().transactions.len(), 1);
    let plan = planned(&recording, drive, 1000, &["journal-aware"], Material { roles, recipes: Vec::new() }).unwrap();
    assert!(!plan.states.is_empty());
    for state in &plan.states {
        assert_eq!(state.recipe.kept.len(), 1, "only the commit block is loose: {}", state.recipe);
    }
}

/// A write of eight blocks is torn in flight and in the cache, with either end and with a hole.
#[test]
fn torn_writes_survive_in_part() {
    let mut drive = drive(64 * BLOCK, true);
    drive.mark("mounted").unwrap();
    let write = receive(&mut drive, Command::Write, 8 * BLOCK, 8 * BLOCK, false, 5);
    let replied = drive.reply(write).unwrap();
    done(&mut drive, Command::Write, 0, BLOCK, false, 6);
    drive.mark("workload-end").unwrap();
    let recording = drive.close().unwrap().0;
    let drive = description(AtomicUnit::B4096, 2048);
    let plan = planned(&recording, drive, 60, &["torn"], Material::default()).unwrap();
    let torn = |state: &&powerfail_drive::explore::Planned| {
        let kept = state.recipe.kept[..8].iter().filter(|kept| **kept).count();
        assert!((1..8).contains(&kept), "in part: {}", state.recipe);
        state.recipe.cut <= replied
    };
    let in_flight = plan.states.iter().filter(torn).count();
    assert!(in_flight > 5 && in_flight < plan.states.len(), "{in_flight} of {}", plan.states.len());
    let holes = |kept: &[bool]| kept[0] && kept[7] && kept.iter().any(|kept| !*kept);
    assert!(plan.states.iter().any(|state| holes(&state.recipe.kept[..8])));
}

/// Recipes are made as they are given, and one of another recording is refused.
#[test]
fn replay_makes_what_it_is_given() {
    let (recording, _, _) = one_transaction(false);
    let drive = description(AtomicUnit::B4096, 2048);
    let given = planned(&recording, drive, 9, &["sampled"], Material::default()).unwrap().states;
    let recipes: Vec<_> = given.iter().map(|state| state.recipe.clone()).collect();
    let material = Material { roles: Roles::default(), recipes: recipes.clone() };
    let plan = planned(&recording, drive, 100, &["replay"], material).unwrap();
    assert_eq!(plan.states.iter().map(|state| state.recipe.clone()).collect::<Vec<_>>(), recipes);
    assert!(plan.states.iter().all(|state| state.explorer == "replay"));
    for (change, more) in [(0, true), (1 << 40, false)] {
        let mut foreign = recipes[0].clone();
        foreign.cut += change;
        if more {
            foreign.kept.push(true);
        }
        let material = Material { roles: Roles::default(), recipes: vec![foreign] };
        let refused = planned(&recording, drive, 100, &["replay"], material);
        assert!(matches!(refused, Err(PlanError::Foreign { .. })), "{refused:?}");
    }
}

/// `exhaustive` begins with the ends and with single losses, and says nothing where too much is loose.
#[test]
fn exhaustive_shows_small_losses_first() {
    let (recording, _, settled) = one_transaction(false);
    let drive = description(AtomicUnit::B4096, 2048);
    let outline = Outline::of(&recording, drive).unwrap();
    let mut walk = Walk::new(&recording, drive).unwrap();
    walk.advance(settled).unwrap();
    let loose = walk.history.loose();
    let view = powerfail_drive::explore::View { cut: settled, loose: &loose, contested: false, unit_sectors: 8 };
    let choices = Exhaustive::of(&outline).choices(Seed(1), &view, 0, 0);
    let lost: Vec<usize> = choices.iter().map(|choice| choice.kept.iter().filter(|kept| !**kept).count()).collect();
    assert_eq!(lost[..8], [0, 6, 1, 5, 1, 5, 1, 5]);
    assert_eq!(choices.len(), 64);
}
