use super::engine::Engine;
use super::ratio::Ratio;
use super::report::{EngineReport, LayerTimes, NetworkReport, Report, Speed};
use crate::digits::number;

/// The report as tables for people and documents.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let Report {
        cpu,
        target,
        cores,
        threads,
        seconds,
        repeats,
        turn,
        batch_seconds_max,
        seed,
        peers,
        compared,
        networks,
    } = report;
    let mut text = format!(
        "# The CPU kernel beside other engines\n\n\
         - machine: {cpu}, {target}, {cores} cores\n\
         - threads: {threads}, each with an engine of its own that computes on one thread\n\
         - every number: the {turn} of {repeats} turns of {seconds} s; seed {seed}\n\
         - share of the peak: multiply-adds of nine taps that lie on the board, over what the instructions do from registers \
         alone; paths in float32 make down to a quarter as many in the blocks, so theirs may exceed 100 %\n\
         - left out (–): batches that take longer than {batch_seconds_max} s\n"
    );
    if let Some(peers) = peers {
        text += &format!("- called from Python, with the softmax left out: {peers}\n");
    }
    if let Some(compared) = compared {
        text += &format!("- ×: over {}, measured on {}\n", compared.file, compared.cpu);
    }
    networks.iter().for_each(|network| text += &section(network));
    text
}

fn section(report: &NetworkReport) -> String {
    let NetworkReport { network, multiply_adds, engines, .. } = report;
    let work =
        multiply_adds.map_or(String::new(), |n| format!(": {:.1} million multiply-adds a position", n as f64 / 1e6));
    let mut text = format!("\n## {network}{work}\n\n{}\n\n{}", in_words(report), speeds(report));
    for EngineReport { engine, not_measured, .. } in engines {
        if let Some(reason) = not_measured {
            text += &format!("\n{engine}: not measured: {reason}\n");
        }
    }
    text + &layers(engines)
}

/// What the kernel chooses and what that is worth.
fn in_words(report: &NetworkReport) -> String {
    let mut text = match report.chosen {
        Some(path) => format!("The kernel chooses {path} ({}).", report.reason),
        None => format!("The kernel does not compute this network: {}.", report.reason),
    };
    for ratio in &report.ratios {
        text += &format!("\n- {}", ratio_in_words(ratio));
    }
    text
}

fn ratio_in_words(ratio: &Ratio) -> String {
    let Ratio { kernel, over, precision, best_batch, batch_1, batch_8 } = ratio;
    let other = match precision {
        Some(precision) => format!("{over} in {precision}"),
        None => over.to_string(),
    };
    let times = [(best_batch, "the best batch of each"), (batch_1, "batch 1"), (batch_8, "batch 8")]
        .into_iter()
        .filter_map(|(ratio, at)| ratio.map(|ratio| format!("{ratio:.2} times at {at}")))
        .collect::<Vec<_>>();
    format!("{kernel} over {other}: {}", times.join(", "))
}

/// Evaluations/s by engine and batch size.
fn speeds(report: &NetworkReport) -> String {
    let batches = report.batches();
    let mut text = "| evaluations/s (share of the peak) |".to_owned();
    batches.iter().for_each(|batch| text += &format!(" batch {batch} |"));
    text += " peak, 10⁹ multiply-adds/s |\n|---|";
    text += &"---:|".repeat(batches.len() + 1);
    for engine in report.engines.iter().filter(|engine| !engine.speeds.is_empty()) {
        let chosen = report.chosen == Some(engine.engine);
        text += &if chosen { format!("\n| **{}** |", engine.engine) } else { format!("\n| {} |", engine.engine) };
        for batch in &batches {
            let speed = engine.speeds.iter().find(|speed| speed.batch == *batch);
            text += &format!(" {} |", speed.map_or("–".to_owned(), cell));
        }
        text += &format!(" {} |", engine.peak.map_or("–".to_owned(), |peak| format!("{:.0}", peak / 1e9)));
    }
    text + "\n"
}

fn cell(speed: &Speed) -> String {
    let share = speed.share_of_peak.map_or(String::new(), |share| format!(" ({:.0} %)", 100.0 * share));
    let ratio = speed.ratio.map_or(String::new(), |ratio| format!(" ×{ratio:.2}"));
    number(speed.evaluations_per_second) + &share + &ratio
}

/// Where the kernel's time goes.
fn layers(engines: &[EngineReport]) -> String {
    let rows: String =
        engines.iter().flat_map(|report| report.layers.iter().map(|times| layer_row(report.engine, times))).collect();
    if rows.is_empty() {
        return rows;
    }
    "\n| ns per position and thread | batch | observations | stem | a block | convolution of the heads | layers of the heads |\n\
     |---|---:|---:|---:|---:|---:|---:|\n"
        .to_owned()
        + &rows
}

fn layer_row(engine: Engine, times: &LayerTimes) -> String {
    let LayerTimes { batch, observe_ns, stem_ns, heads_ns, layers_ns, .. } = times;
    let block_ns = times.mean_block_ns();
    format!(
        "| {engine} | {batch} | {observe_ns:.0} | {stem_ns:.0} | {block_ns:.0} | {heads_ns:.0} | {layers_ns:.0} |\n"
    )
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    fn lines() -> Vec<String> {
        markdown(&testing::report()).lines().map(str::to_owned).collect()
    }

    #[track_caller]
    fn assert_line(line: &str) {
        let lines = lines();
        assert!(lines.iter().any(|written| written == line), "{line}\nis not in\n{}", lines.join("\n"));
    }

    #[test]
    fn speeds_stand_beside_each_other_by_batch_size() {
        assert_line("## 6x64@6x7: 18.9 million multiply-adds a position");
        assert_line("| evaluations/s (share of the peak) | batch 1 | batch 8 | batch 32 | peak, 10⁹ multiply-adds/s |");
        assert_line("| **avx512-bf16** | 6000 | 12000 | 24000 (61 %) | 400 |");
        assert_line("| libtorch f32 | 2000 | 3000 | – | – |");
    }

    #[test]
    fn the_choice_and_what_it_is_worth_are_told_in_words() {
        assert_line("The kernel chooses avx512-bf16 (the widest).");
        assert_line(
            "- avx512-bf16 over libtorch: 2.00 times at the best batch of each, 3.00 times at batch 1, 3.00 times at batch 8",
        );
        assert_line("- avx512-bf16 over openvino: 3.00 times at the best batch of each, 1.50 times at batch 1");
        assert_line(
            "- avx2-f32 over libtorch in f32: 1.67 times at the best batch of each, 1.50 times at batch 1, 1.33 times at batch 8",
        );
    }

    #[test]
    fn layers_are_told_in_nanoseconds_and_blocks_by_their_mean() {
        assert_line("| avx512-bf16 | 32 | 50 | 400 | 4000 | 300 | 200 |");
    }

    #[test]
    fn what_was_not_measured_says_why() {
        assert_line("onnxruntime f32: not measured: it ended");
        assert!(lines().iter().all(|line| !line.starts_with("| onnxruntime")));
    }
}
