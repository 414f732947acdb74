use super::report::{Placed, ProcessMemory, Report, Transfers};
use crate::accelerator::Accelerator;
use crate::digits::{known_number as number, known_percent as percent};
use crate::phases::{Compared, Rates};

/// What is not known.
const MISSING: &str = "not measured";

/// The report as tables for people and documents.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let Report { cpu, target, cores, game, network, sets, actors, actor_threads, learner_threads, .. } = report;
    let sets: String = sets.iter().map(|set| format!(", {set}")).collect();
    let mut text = format!(
        "# Where everything lies\n\n\
         - machine: {cpu}, {target}, {cores} cores\n\
         - run: {game}, network {network}, {actors} actor(s) of {actor_threads} thread(s), learner of {learner_threads} \
         thread(s){sets}; measured for {:.1} s\n",
        report.seconds
    );
    text += &accelerators(&report.accelerators);
    text += &report.compared.as_ref().map_or(String::new(), Compared::in_words);
    text += if report.is_accelerated() { "" } else { "- **everything lives on the CPU**\n" };
    text += &transfers(&report.transfers);
    text += &tensors(&report.tensors);
    text += &processes(&report.processes);
    text + &speeds(report)
}

fn accelerators(accelerators: &[Accelerator]) -> String {
    let one = |Accelerator { name, busy_share, memory_bytes }: &Accelerator| {
        let busy = busy_share.map_or_else(|| MISSING.to_owned(), |share| percent(Some(share)));
        format!("- accelerator: {name}, busy {busy} of the time, {} in use\n", memory(*memory_bytes))
    };
    match accelerators {
        [] => "- no accelerator here\n".to_owned(),
        some => some.iter().map(one).collect(),
    }
}

fn transfers(transfers: &Transfers) -> String {
    let Transfers { training_batches_per_second, training_bytes_per_second, .. } = *transfers;
    let Transfers { evaluated_batches_per_second, evaluated_bytes_per_second, .. } = *transfers;
    let copied = |batches: Option<f64>, bytes: Option<f64>| match (batches, bytes) {
        (Some(0.0), _) => "none".to_owned(),
        (Some(batches), Some(bytes)) => format!("{} batches/s, {:.1} MB/s", number(Some(batches)), bytes / 1e6),
        _ => "unknown".to_owned(),
    };
    format!(
        "- copied to the learner's device: {}; to that of self-play and back: {}\n\n",
        copied(training_batches_per_second, training_bytes_per_second),
        copied(evaluated_batches_per_second, evaluated_bytes_per_second),
    )
}

fn tensors(tensors: &[Placed]) -> String {
    let mut text = "| what | process | device | what computes |\n|---|---|---|---|\n".to_owned();
    for Placed { what, process, device, computed_by } in tensors {
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "unknown".to_owned());
        text += &format!("| {what} | {process} | {} | {} |\n", known(device), known(computed_by));
    }
    text + "\n"
}

fn processes(processes: &[ProcessMemory]) -> String {
    let mut text = "| process | threads | memory |\n|---|---:|---:|\n".to_owned();
    for ProcessMemory { name, threads, memory_bytes } in processes {
        let threads = threads.map_or_else(|| MISSING.to_owned(), |threads| threads.to_string());
        text += &format!("| {name} | {threads} | {} |\n", memory(*memory_bytes));
    }
    text + "\n"
}

fn speeds(report: &Report) -> String {
    let mut text =
        "| | moves/s | evaluations/s | training steps/s | positions trained on/s |\n|---|---:|---:|---:|---:|\n"
            .to_owned();
    let mut row = |name: &str, rates: &Rates| {
        let Rates { positions_per_second, evaluations_per_second, steps_per_second, .. } = *rates;
        let cells =
            [positions_per_second, evaluations_per_second, steps_per_second, rates.training_positions_per_second];
        text += &format!("| {name} | {} |\n", cells.map(number).join(" | "));
    };
    row(if report.is_accelerated() { "as placed" } else { "on the CPU" }, &report.rates);
    if let Some(rates) = &report.rates_on_the_cpu {
        row("all on the CPU", rates);
    }
    text
}

fn memory(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| MISSING.to_owned(), |bytes| format!("{:.0} MiB", bytes as f64 / f64::from(1 << 20)))
}

#[cfg(test)]
mod tests {
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
}
