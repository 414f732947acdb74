use clap::Parser;

use super::*;

#[derive(clap::Parser)]
struct Line<A: clap::Args> {
    #[command(flatten)]
    args: A,
}

/// Options as they are read from a command line.
pub(super) fn args<A: clap::Args>(line: &str) -> A {
    parsed(line.split_whitespace()).unwrap()
}

/// The same, for options that may be refused.
pub(super) fn parsed<'a, A: clap::Args>(options: impl IntoIterator<Item = &'a str>) -> Result<A, clap::Error> {
    Line::try_parse_from(["bench"].into_iter().chain(options)).map(|line| line.args)
}

#[test]
fn a_turn_is_the_middle_or_the_fastest() {
    let turns = || vec![("slow", 1.0), ("fast", 3.0), ("middling", 2.0)];
    assert_eq!(Turn::Median.of(turns(), |turn| turn.1), Some(("middling", 2.0)));
    assert_eq!(Turn::Best.of(turns(), |turn| turn.1), Some(("fast", 3.0)));
    assert_eq!(Turn::Best.of(Vec::<f64>::new(), |&turn| turn), None);
}

#[test]
fn the_median_is_the_middle() {
    assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[]), None);
}
