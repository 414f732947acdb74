use super::super::tests::report;
use super::*;

#[test]
fn on_a_machine_without_accelerator_that_is_said_plainly() {
    let text = markdown(&report("cpu"));
    for said in [
        "\n- no accelerator here\n",
        "\n- **everything lives on the CPU**\n",
        "\n- copied to the learner's device: none; to that of self-play and back: none\n",
        "\n| weights and activations of self-play | actor | cpu | CPU kernel, avx2 |\n",
        "\n| learner | 9 | 64 MiB |\n",
        "\n| on the CPU | 500 | 6000 | 2.0 | 512 |\n",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(!text.contains("all on the CPU"), "{text}");
}

#[test]
fn with_an_accelerator_the_run_without_stands_beside_it() {
    let mut report = report("cuda");
    report.accelerators =
        vec![Accelerator { name: "A".to_owned(), busy_share: Some(0.5), memory_bytes: Some(1 << 30) }];
    report.rates_on_the_cpu = Some(Rates { steps_per_second: Some(0.5), ..Rates::default() });
    let text = markdown(&report);
    for said in [
        "\n- accelerator: A, busy 50.0 % of the time, 1024 MiB in use\n",
        "- copied to the learner's device: 2.0 batches/s, ",
        "\n| as placed | 500 |",
        "\n| all on the CPU | – | – | 0.50 | – |\n",
    ] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(!text.contains("everything lives"), "{text}");
}

#[test]
fn an_earlier_report_stands_beside_it() {
    let mut report = report("cpu");
    report.compared = Some(Compared::new("before.json".as_ref(), "Another CPU", &report.rates, &report.rates));
    let text = markdown(&report);
    assert!(text.contains("\n- change: to before.json, measured on Another CPU; moves/s 1.00 times"), "{text}");
}
