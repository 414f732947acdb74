use super::report::{Report, SizeReport, StallReport, WritersReport};
use crate::digits::number;
use crate::latency::Latency;

/// The report as tables for people and documents.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let Report { cpu, target, cores, steps, batch, unroll, in_flight, sets, .. } = report;
    let Report { seconds, repeats, turn, seed, compared, writers, sizes, stall, .. } = report;
    let sets: String = sets.iter().map(|set| format!(", {set}")).collect();
    let mut text = format!(
        "# The replay server\n\n\
         - machine: {cpu}, {target}, {cores} cores, shared by server and clients, over loopback\n\
         - trajectories of Connect Four with {steps} steps, each a position to sample; {in_flight} unacknowledged by each writer; \
         every one durable before it is acknowledged{sets}\n\
         - one sampler, batches of {batch}, {unroll} steps unrolled; the limiter holds nothing up\n\
         - every number: the {turn} of {repeats} turns of {seconds} s; seed {seed}\n"
    );
    if let Some(compared) = compared {
        text += &format!("- ×: over {}, measured on {}\n", compared.file, compared.cpu);
    }
    text += &by_writers(writers);
    text += &by_size(sizes);
    text + &stall.as_ref().map_or(String::new(), beside_stall)
}

fn by_writers(writers: &[WritersReport]) -> String {
    if writers.is_empty() {
        return String::new();
    }
    let mut text =
        "\n| writers | inserts/s | one unacknowledged: p50, p99 | samples/s, nobody inserting | per batch: p50, p99 | \
                    samples/s beside the writers | per batch: p50, p99 |\n|---:|---:|---:|---:|---:|---:|---:|\n"
            .to_owned();
    for report in writers {
        text += &format!(
            "| {} | {}{} | {} | {}{} | {} | {} | {} |\n",
            report.writers,
            number(report.inserts_per_second),
            times(report.inserts_ratio),
            latency(report.insert_latency),
            number(report.samples_per_second),
            times(report.samples_ratio),
            latency(report.sample_latency),
            number(report.samples_per_second_beside_writers),
            latency(report.sample_latency_beside_writers),
        );
    }
    text
}

fn by_size(sizes: &[SizeReport]) -> String {
    if sizes.is_empty() {
        return String::new();
    }
    let mut text = "\n| positions held | samples/s | per batch: p50, p99 | log | drained in | serving again after |\n\
                    |---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for report in sizes {
        text += &format!(
            "| {} | {}{} | {} | {:.0} MB | {:.2} s | {:.2} s |\n",
            number(report.positions as f64),
            number(report.samples_per_second),
            times(report.samples_ratio),
            latency(report.sample_latency),
            report.log_bytes as f64 / 1e6,
            report.drain_seconds,
            report.restart_seconds,
        );
    }
    text
}

fn beside_stall(report: &StallReport) -> String {
    let StallReport { seconds, inserts_per_second, samples_per_second, memory_bytes, .. } = report;
    let memory = |bytes: Option<u64>| bytes.map_or("–".to_owned(), |bytes| format!("{:.0} MB", bytes as f64 / 1e6));
    format!(
        "\n| one writer, one sampler, {seconds} s | inserts/s | samples/s | resident memory of server and clients |\n\
         |---|---:|---:|---:|\n\
         | alone | {} | {} | {} |\n| beside a sampler that reads nothing | {} | {} | {} |\n",
        number(*inserts_per_second),
        number(*samples_per_second),
        memory(*memory_bytes),
        number(report.inserts_per_second_beside),
        number(report.samples_per_second_beside),
        memory(report.memory_bytes_beside),
    )
}

fn latency(Latency { p50_ms, p99_ms }: Latency) -> String {
    format!("{p50_ms:.2}, {p99_ms:.2} ms")
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or(String::new(), |ratio| format!(" ×{ratio:.2}"))
}

#[cfg(test)]
mod tests {
    use super::super::report::Compared;
    use super::super::tests::report;
    use super::*;

    #[test]
    fn every_number_of_writers_and_every_size_is_a_row() {
        let text = markdown(&report());
        assert!(
            text.contains("\n| 4 | 20000 | 3.20, 9.80 ms | 400000 | 0.60, 1.10 ms | 90000 | 2.00, 5.00 ms |\n"),
            "{text}"
        );
        assert!(text.contains("\n| 1000020 | 390000 | 0.60, 1.20 ms | 25 MB | 0.01 s | 0.90 s |\n"), "{text}");
        assert!(text.contains("\n| alone | 8000 | 300000 | 120 MB |\n"), "{text}");
        assert!(text.contains("\n| beside a sampler that reads nothing | 7900 | 299000 | – |\n"), "{text}");
        assert!(!text.contains('×'), "{text}");
    }

    #[test]
    fn ratios_stand_beside_what_they_are_to() {
        let mut report = report();
        report.compared = Some(Compared { file: "before.json".to_owned(), cpu: "Another CPU".to_owned() });
        report.writers[0].inserts_ratio = Some(1.254);
        let text = markdown(&report);
        assert!(text.contains("\n- ×: over before.json, measured on Another CPU\n"), "{text}");
        assert!(text.contains("| 20000 ×1.25 |"), "{text}");
    }
}
