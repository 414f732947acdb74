use std::path::Path;

use super::report::{FanOutReport, Report, ScaleReport, ScalingReport};
use crate::plot::{self, COLOURS, Line, Panel};

/// Draws inserts/s by actors, and how long subscribers wait for weights, to `path` (SVG).
///
/// # Errors
/// A file that cannot be written.
pub fn draw(path: &Path, report: &Report) -> anyhow::Result<()> {
    let scaling = report.scaling.as_ref().map(inserts);
    let fan_outs = report.load.as_ref().map(|load| load.fan_outs.as_slice()).unwrap_or_default();
    let weights = (!fan_outs.is_empty()).then(|| weights(fan_outs));
    let panels: Vec<Panel> = scaling.into_iter().chain(weights).collect();
    plot::draw(path, &format!("A fleet on {}", report.cpu), &panels)
}

fn inserts(report: &ScalingReport) -> Panel {
    let [blue, _, green, ..] = COLOURS;
    let of_one = report.fleets.first().map_or(f64::NAN, |first| first.inserts_per_second / first.actors as f64);
    let speeds = |speed: &dyn Fn(&ScaleReport) -> f64| {
        let all = report.fleets.iter().map(|fleet| (fleet.actors, speed(fleet)));
        // The axis is logarithmic.
        all.filter(|(_, speed)| speed.is_finite() && *speed > 0.0).collect::<Vec<_>>()
    };
    let measured = speeds(&|fleet| fleet.inserts_per_second);
    let linear = speeds(&|fleet| of_one * fleet.actors as f64);
    Panel {
        title: "inserts per second".to_owned(),
        sizes: "actors",
        lines: vec![
            Line { name: "measured".to_owned(), colour: blue, width: 2, speeds: measured },
            Line { name: "linear".to_owned(), colour: green, width: 1, speeds: linear },
        ],
    }
}

fn weights(fan_outs: &[FanOutReport]) -> Panel {
    let line = |(fan_out, colour): (&FanOutReport, _)| Line {
        name: format!("s, {}", fan_out.network),
        colour,
        width: 2,
        speeds: fan_out.held.clone(),
    };
    Panel {
        title: "seconds from publishing a version".to_owned(),
        sizes: "subscribers that hold it",
        lines: fan_outs.iter().zip(COLOURS.into_iter().cycle()).map(line).collect(),
    }
}
