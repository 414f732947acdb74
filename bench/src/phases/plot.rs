use std::path::Path;

use anyhow::Context;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::report::{Phase, Report};
use plot::{Area, BLUE, GREEN, INK, ORANGE, failed};

/// Width of the picture in pixels.
const WIDTH: u32 = 900;
/// Free at the left and at the right.
const MARGIN: i32 = 24;
/// Room for the title of the picture.
const TITLE_HEIGHT: i32 = 48;
/// Room for the title of a bar.
const NAME_HEIGHT: i32 = 24;
const BAR_HEIGHT: i32 = 34;
/// Of one line of names below a bar.
const LINE_HEIGHT: i32 = 20;
/// Free below a bar and its names.
const GAP: i32 = 20;
/// Width of a letter, a little more than most have.
const LETTER_WIDTH: i32 = 8;
/// Below that a name is not worth its room.
const NAMED_SHARE: f64 = 0.001;

const SKY: RGBColor = RGBColor(120, 185, 225);
const PURPLE: RGBColor = RGBColor(160, 80, 140);
const YELLOW: RGBColor = RGBColor(225, 170, 30);
const WAITING: RGBColor = RGBColor(205, 205, 205);
const NOTHING: RGBColor = RGBColor(232, 232, 232);

/// Shares of one whole, side by side.
struct Bar {
    name: String,
    parts: Vec<Part>,
}

struct Part {
    name: String,
    share: f64,
    colour: RGBColor,
}

/// Draws the shares of phases in the time of threads, and of processes in the CPU time, to `path` (SVG).
///
/// # Errors
/// A file that cannot be written.
pub fn draw(path: &Path, report: &Report) -> anyhow::Result<()> {
    let bars = bars(report);
    let lines = |bar: &Bar| i32::try_from(lines(bar).len()).unwrap_or(1);
    let heights = bars.iter().map(|bar| NAME_HEIGHT + BAR_HEIGHT + lines(bar) * LINE_HEIGHT + GAP);
    let height = TITLE_HEIGHT + heights.sum::<i32>();
    let root = SVGBackend::new(path, (WIDTH, u32::try_from(height).unwrap_or(WIDTH))).into_drawing_area();
    let title = format!("Where the time of a run of {} goes, on {}", report.game, report.cpu);
    let drawn = draw_bars(&root, &title, &bars).and_then(|()| root.present().map_err(failed));
    drawn.with_context(|| format!("draw {}", path.display()))
}

fn bars(report: &Report) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    for threads in &report.threads {
        let named = |count| if count == 1 { "thread" } else { "threads" };
        let part = |time: &super::PhaseTime| Part {
            name: time.phase.to_string(),
            share: time.wall_share,
            colour: colour(time.phase),
        };
        bars.push(Bar {
            name: format!("time of {} {} {}", threads.count, threads.name, named(threads.count)),
            parts: threads.phases.iter().map(part).collect(),
        });
    }
    let colours = [BLUE, ORANGE, GREEN, PURPLE, YELLOW, SKY];
    let processes = report.processes.iter().zip(colours.into_iter().cycle());
    let parts: Vec<Part> = processes
        .filter_map(|(process, colour)| Some(Part { name: process.name.clone(), share: process.cpu_share?, colour }))
        .collect();
    if !parts.is_empty() {
        bars.push(Bar { name: "CPU time of all processes".to_owned(), parts });
    }
    bars
}

fn draw_bars(root: &Area<'_>, title: &str, bars: &[Bar]) -> anyhow::Result<()> {
    root.fill(&WHITE).map_err(failed)?;
    write(root, title, (MARGIN, TITLE_HEIGHT / 2), 19)?;
    let mut y = TITLE_HEIGHT;
    for bar in bars {
        write(root, &bar.name, (MARGIN, y + NAME_HEIGHT / 2), 15)?;
        y += NAME_HEIGHT;
        draw_bar(root, bar, y)?;
        y += BAR_HEIGHT;
        for line in lines(bar) {
            draw_names(root, &line, y + LINE_HEIGHT / 2)?;
            y += LINE_HEIGHT;
        }
        y += GAP;
    }
    Ok(())
}

fn draw_bar(root: &Area<'_>, bar: &Bar, top: i32) -> anyhow::Result<()> {
    let width = f64::from(WIDTH) - 2.0 * f64::from(MARGIN);
    let at = |share: f64| MARGIN + (share.clamp(0.0, 1.0) * width).round() as i32;
    let mut before = 0.0;
    for Part { share, colour, .. } in &bar.parts {
        let corners = [(at(before), top), (at(before + share), top + BAR_HEIGHT - 4)];
        root.draw(&Rectangle::new(corners, colour.filled())).map_err(failed)?;
        before += share;
    }
    Ok(())
}

/// Squares of colour, each with its name.
fn draw_names(root: &Area<'_>, parts: &[&Part], y: i32) -> anyhow::Result<()> {
    let mut x = MARGIN;
    for part in parts {
        root.draw(&Rectangle::new([(x, y - 5), (x + 10, y + 5)], part.colour.filled())).map_err(failed)?;
        write(root, &label(part), (x + 15, y), 13)?;
        x += label_width(part);
    }
    Ok(())
}

/// What is worth a name, in lines that fit the width.
fn lines(bar: &Bar) -> Vec<Vec<&Part>> {
    let mut lines = vec![Vec::new()];
    let (mut x, right) = (MARGIN, i32::try_from(WIDTH).unwrap_or(i32::MAX) - MARGIN);
    for part in bar.parts.iter().filter(|part| part.share >= NAMED_SHARE) {
        if x > MARGIN && x + label_width(part) > right {
            lines.push(Vec::new());
            x = MARGIN;
        }
        x += label_width(part);
        if let Some(line) = lines.last_mut() {
            line.push(part);
        }
    }
    lines
}

fn label(part: &Part) -> String {
    format!("{} {:.1} %", part.name, 100.0 * part.share)
}

fn label_width(part: &Part) -> i32 {
    let letters = i32::try_from(label(part).chars().count()).unwrap_or(0);
    15 + letters * LETTER_WIDTH
}

fn write(root: &Area<'_>, text: &str, at: (i32, i32), size: i32) -> anyhow::Result<()> {
    let style = ("sans-serif", size).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    root.draw(&Text::new(text.to_owned(), at, style)).map_err(failed)
}

/// Work is coloured, waiting grey.
fn colour(phase: Phase) -> RGBColor {
    match phase {
        Phase::Selection | Phase::Forward => BLUE,
        Phase::Observation | Phase::Staging | Phase::Transfer => SKY,
        Phase::Evaluation | Phase::Backward | Phase::Preparation => ORANGE,
        Phase::Expansion | Phase::Optimiser => GREEN,
        Phase::Upload | Phase::Publication => PURPLE,
        Phase::Loading | Phase::Checkpoint => YELLOW,
        Phase::Other => NOTHING,
        Phase::WaitingForReplay
        | Phase::WaitingForWeights
        | Phase::WaitingForSamples
        | Phase::WaitingForTraining
        | Phase::Sampling => WAITING,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn every_share_that_can_be_seen_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("phases.svg");
        draw(&path, &report()).unwrap();
        let svg = std::fs::read_to_string(path).unwrap();
        let shares = ["evaluation 40.0 %", "backward 50.0 %", "waiting for training 90.0 %", "actor-0 56.2 %"];
        for text in shares.into_iter().chain(["time of 2 self-play threads", "CPU time of all processes"]) {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains("checkpoint"), "what took no time has no name");
    }

    #[test]
    fn names_stay_within_the_width() {
        for bar in bars(&report()) {
            for line in lines(&bar) {
                let width: i32 = line.iter().map(|part| label_width(part)).sum();
                assert!(width <= i32::try_from(WIDTH).unwrap() - 2 * MARGIN, "{width}");
            }
        }
    }

    #[test]
    fn without_cpu_times_there_is_no_bar_of_them() {
        let mut report = report();
        report.processes.iter_mut().for_each(|process| process.cpu_share = None);
        assert_eq!(bars(&report).len(), report.threads.len());
    }
}
