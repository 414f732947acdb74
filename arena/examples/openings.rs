//! Prints solved positions of Connect Four with 8 to 11 stones as CSV: `openings SEED COUNT`. Each takes up to minutes.
//!
//! Both seed and count follow the program's name. See `crates/games/data/README.md` for the columns.

use std::io::{self, Write as _};

use oracles::{LabelledPosition, connect_four_openings};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = || arguments.next().ok_or("usage: openings SEED COUNT");
    let (seed, count) = (number()?.parse()?, number()?.parse()?);
    let mut out = io::stdout().lock();
    writeln!(out, "moves,band,c1,c2,c3,c4,c5,c6,c7")?;
    for LabelledPosition { actions, band, scores } in connect_four_openings(seed, count) {
        let moves: String = actions.iter().map(|action| (action.index() + 1).to_string()).collect();
        let scores = scores.iter().map(|score| score.map_or_else(String::new, |score| score.to_string()));
        writeln!(out, "{moves},{band},{}", scores.collect::<Vec<_>>().join(","))?;
        out.flush()?;
    }
    Ok(())
}
