use std::path::Path;

use super::report::{Compared, Report, Searched, SearchedTogether};

/// Adds the ratio to every speed that the earlier report has too.
pub(super) fn compare(report: &mut Report, path: &Path, earlier: &Report) {
    report.compared = Some(Compared { file: path.display().to_string(), cpu: earlier.cpu.clone() });
    for now in &mut report.searched {
        let before = earlier.searched.iter().find(|before| is_same(before, now));
        now.ratio = before.map(|before| now.simulations_per_second / before.simulations_per_second);
    }
    for now in &mut report.together {
        let before = earlier.together.iter().find(|before| is_same_together(before, now));
        now.ratio = before.map(|before| now.simulations_per_second / before.simulations_per_second);
    }
}

fn is_same_together(a: &SearchedTogether, b: &SearchedTogether) -> bool {
    let settings = |searched: &SearchedTogether| (searched.simulations, searched.threads, searched.leaves);
    (&a.game, &a.network, settings(a)) == (&b.game, &b.network, settings(b))
}

fn is_same(a: &Searched, b: &Searched) -> bool {
    (&a.game, a.rule, a.simulations, a.threads) == (&b.game, b.rule, b.simulations, b.threads)
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn speeds_are_compared_with_the_same_game_rule_simulations_and_threads() {
        let mut now = report();
        let mut earlier = report();
        earlier.cpu = "Another CPU".to_owned();
        earlier.searched.reverse();
        earlier.searched.iter_mut().for_each(|searched| searched.simulations_per_second /= 2.0);
        earlier.searched.retain(|searched| searched.threads == 1);
        compare(&mut now, Path::new("before.json"), &earlier);
        for searched in &now.searched {
            assert_eq!(searched.ratio, (searched.threads == 1).then_some(2.0), "{searched:?}");
        }
        assert!(now.together.iter().all(|searched| searched.ratio == Some(1.0)), "{now:?}");
        let compared = now.compared.unwrap();
        assert_eq!((compared.file.as_str(), compared.cpu.as_str()), ("before.json", "Another CPU"));
    }
}
