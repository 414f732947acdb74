use std::fmt::Write as _;

use super::report::{CallersReport, OverloadReport, Report, ShareReport};
use crate::digits::{number, time};

/// The report for people.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write(&mut text, report);
    text
}

fn write(text: &mut String, report: &Report) -> std::fmt::Result {
    let Report { cpu, target, cores, game, blocks, channels, evaluator, threads, batch, in_flight, .. } = report;
    writeln!(text, "- machine: {cpu}, {target}, {cores} cores, shared by server and clients, over loopback")?;
    writeln!(text, "- network {blocks}x{channels} of {game}, random weights; {evaluator}, {threads} thread(s)")?;
    writeln!(
        text,
        "- asks of {batch} positions, {in_flight} unanswered; in a process, batches of {batch}; no position cache"
    )?;
    if !report.sets.is_empty() {
        writeln!(text, "- server with {}", report.sets.join(", "))?;
    }
    let Report { turn, repeats, seconds, seed, .. } = report;
    writeln!(text, "- every number: the {turn} of {repeats} turns of {seconds} s; seed {seed}\n")?;

    writeln!(text, "| | evaluations/s | share of in a process | an ask: p50, p99 |\n|---|---:|---:|---:|")?;
    writeln!(text, "| in a process | {:.0} | | |", report.in_process_evaluations_per_second)?;
    for (name, way) in [("fast path", report.fast), ("`ModelInfer`", report.model_infer)] {
        let ShareReport { evaluations_per_second, share_of_in_process, latency } = way;
        let percent = 100.0 * share_of_in_process;
        let (p50, p99) = (time(latency.p50_ms * 1e3), time(latency.p99_ms * 1e3));
        writeln!(text, "| {name} | {evaluations_per_second:.0} | {percent:.1} % | {p50}, {p99} |")?;
    }
    writeln!(text)?;

    writeln!(text, "| callers, one position each | evaluations/s | p50 | p99 |\n|---:|---:|---:|---:|")?;
    for &CallersReport { callers, positions_per_second, latency } in &report.callers {
        let (p50, p99) = (time(latency.p50_ms * 1e3), time(latency.p99_ms * 1e3));
        writeln!(text, "| {callers} | {positions_per_second:.0} | {p50} | {p99} |")?;
    }
    let OverloadReport { callers, deadline_ms, evaluations_per_second, latency, refused_share, expired_share } =
        report.overload;
    writeln!(
        text,
        "\nToo much asked: {callers} callers of {batch} positions each, answers wanted within {deadline_ms} ms: \
         {evaluations_per_second:.0} evaluations/s, p50 {} ms, p99 {} ms; {:.1} % of the asks refused at once, of {:.1} % the time was up while they waited.",
        number(latency.p50_ms),
        number(latency.p99_ms),
        100.0 * refused_share,
        100.0 * expired_share,
    )
}
