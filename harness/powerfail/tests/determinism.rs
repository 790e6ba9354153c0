//! Everything after the recording is pure: the same plan, byte for byte, and the same images.

mod common;

use std::fs;

use common::*;

#[test]
fn one_recording_gives_one_plan() {
    if !ready() {
        return;
    }
    for mode in ["barrier", "torn-512", "nobarrier-w0"] {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("run");
        let plan = out.join(format!("ext4-{mode}/plan.jsonl"));
        run(&mut small("record", &out, mode, 24)).expect(0);
        assert!(!plan.exists(), "`record` only records");
        let elsewhere = folder.path().join("elsewhere");
        copy(&out, &elsewhere);
        run(program().arg("plan").arg(&out)).expect(0);
        let first = fs::read(&plan).unwrap();
        // A plan that is there is taken as it is, so it must go before it can be made again.
        fs::remove_file(&plan).unwrap();
        run(program().arg("plan").arg(&out)).expect(0);
        assert!(first == fs::read(&plan).unwrap(), "{mode}: the same recording, another plan");
        run(program().arg("plan").arg(&elsewhere)).expect(0);
        let other = fs::read(elsewhere.join(format!("ext4-{mode}/plan.jsonl"))).unwrap();
        assert!(first == other, "{mode}: the folder's place is part of the plan");
    }
}

#[test]
fn another_number_of_states_is_another_plan_of_the_same_recording() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut small("record", &out, "barrier", 24)).expect(0);
    for count in [1, 5, 40] {
        let here = folder.path().join(count.to_string());
        copy(&out, &here);
        let file = here.join("run.json");
        let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        config["cells"][0]["states"] = count.into();
        fs::write(&file, config.to_string()).unwrap();
        run(program().arg("plan").arg(&here)).expect(0);
        let recipes = planned(&here, BARRIER);
        assert_eq!(recipes.len(), count, "the recording has more states than that");
        let distinct: std::collections::BTreeSet<_> = recipes.iter().collect();
        assert_eq!(distinct.len(), count);
    }
}

#[test]
fn a_recipe_materialises_to_the_image_that_the_ledger_names() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for mode in ["barrier", "torn-512"] {
        let out = folder.path().join(mode);
        let ran = run(&mut small("run", &out, mode, 8));
        assert!(matches!(ran.code(), Some(0)), "{ran:?}");
        for (index, state) in states(&out).iter().enumerate() {
            let image = folder.path().join(format!("{mode}-{index}"));
            run(program().arg("materialise").arg(&state.state).arg("--dir").arg(&out).arg("-o").arg(&image)).expect(0);
            assert_eq!(digest_of(&image), state.image, "{}", state.state);
            fs::remove_file(image).unwrap();
        }
    }
}
