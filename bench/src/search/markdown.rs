use super::report::{Report, Searched, SearchedTogether};

/// The report as a table for people and documents.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let Report { cpu, target, cores, seconds, repeats, turn, seed, compared, searched, together } = report;
    let mut text = format!(
        "# Simulations/s of the tree alone\n\n\
         - machine: {cpu}, {target}, {cores} cores\n\
         - uniform priors, every position worth zero; games from start to end, every move from a fresh root with noise\n\
         - every number: the {turn} of {repeats} turns of {seconds} s; seed {seed}\n"
    );
    if let Some(compared) = compared {
        text += &format!("- ratio: to {}, measured on {}\n", compared.file, compared.cpu);
    }
    let ratio = compared.is_some();
    text += "\n| game | rule | simulations per move | threads | simulations/s | bytes per node |";
    text += if ratio { " ratio |\n" } else { "\n" };
    text += "|---|---|---:|---:|---:|---:|";
    text += if ratio { "---:|\n" } else { "\n" };
    for Searched { game, rule, simulations, threads, simulations_per_second, bytes_per_node, ratio: times } in searched
    {
        let millions = simulations_per_second / 1e6;
        text += &format!("| {game} | {rule} | {simulations} | {threads} | {millions:.2} M | {bytes_per_node:.0} |");
        if ratio {
            text += &format!(" {} |", times.map_or("–".to_owned(), |times| format!("{times:.2}")));
        }
        text += "\n";
    }
    if !together.is_empty() {
        text += &one_tree(together, ratio);
    }
    text
}

/// The part about one tree with many threads.
fn one_tree(together: &[SearchedTogether], ratio: bool) -> String {
    let SearchedTogether { game, network, evaluator, simulations, .. } = &together[0];
    let mut text = format!(
        "\n## One tree, many threads\n\n\
         {game}, random weights of {network} ({evaluator}), {simulations} simulations by pUCT from the start: one thread has the tree, \
         the others evaluate.\n\n| evaluating threads | leaves at a time | simulations/s |"
    );
    text += if ratio { " ratio |\n|---:|---:|---:|---:|\n" } else { "\n|---:|---:|---:|\n" };
    for SearchedTogether { threads, leaves, simulations_per_second, ratio: times, .. } in together {
        text += &format!("| {threads} | {leaves} | {simulations_per_second:.0} |");
        if ratio {
            text += &format!(" {} |", times.map_or("–".to_owned(), |times| format!("{times:.2}")));
        }
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::report::Compared;
    use super::super::tests::report;
    use super::*;

    #[test]
    fn every_search_is_a_row() {
        let text = markdown(&report());
        assert!(
            text.contains("\n| game | rule | simulations per move | threads | simulations/s | bytes per node |\n"),
            "{text}"
        );
        assert!(text.contains("\n| connect_four | puct | 64 | 1 | 6.10 M | 270 |\n"), "{text}");
        assert!(text.contains("\n| 2 | 8 | 21000 |\n"), "{text}");
        assert!(!text.contains("ratio"), "{text}");
    }

    #[test]
    fn ratios_stand_beside_what_they_are_to() {
        let mut report = report();
        report.compared = Some(Compared { file: "before.json".to_owned(), cpu: "Another CPU".to_owned() });
        report.searched[0].ratio = Some(1.254);
        let text = markdown(&report);
        assert!(text.contains("\n- ratio: to before.json, measured on Another CPU\n"), "{text}");
        assert!(text.contains("\n| connect_four | puct | 64 | 1 | 6.10 M | 270 | 1.25 |\n"), "{text}");
        assert!(text.contains("\n| connect_four | gumbel | 64 | 2 | 4.00 M | 270 | – |\n"), "{text}");
    }
}
