//! The charts of a run as HTML. Each is drawn at most once per change of metrics or ratings, for all visitors. Start
//! with [`Charts::new`].

use std::mem;
use std::sync::{Arc, LazyLock};

use figures::plot::Figure;
use maud::{Markup, PreEscaped, html};
use run_metrics::History;
use run_metrics::charts::{self, RatedVersion};
use strength::ledger::{Player, Rated};

use crate::ratings::{Fit, Ratings};

/// Size of a chart in pixels; a browser shrinks it to the width of a phone.
pub(crate) const WIDTH: i32 = 520;
pub(crate) const HEIGHT: i32 = 280;
/// Attribute of SVG files, without meaning inside a page.
const NAMESPACE: &str = " xmlns=\"http://www.w3.org/2000/svg\"";

/// Charts that are drawn for the first page with them.
type Lazy = LazyLock<String, Box<dyn FnOnce() -> String + Send>>;

/// The charts of recorded metrics.
#[derive(Debug)]
pub(crate) struct Charts {
    pub(crate) history: Arc<History>,
    /// The main charts, one per element.
    pub(crate) learning: Vec<String>,
    /// All charts of the strength; empty without a measurement.
    pub(crate) strength: Lazy,
    /// The chart of distinct positions.
    pub(crate) distinct: Lazy,
}

impl Charts {
    /// Draws the main charts, and prepares the charts of single pages.
    pub(crate) fn new(history: Arc<History>, ratings: Arc<Ratings>) -> Self {
        let learning = drawn(charts::overview(history.readings(), WIDTH, HEIGHT)).collect();
        let [of_strength, of_distinct] = [(); 2].map(|()| Arc::clone(&history));
        let strength = Lazy::new(Box::new(move || {
            let rated = ratings.read().map(|fit| rated(&fit)).unwrap_or_default();
            drawn(charts::strengths(of_strength.readings(), &rated, WIDTH, HEIGHT)).collect::<String>()
        }));
        let distinct = Lazy::new(Box::new(move || {
            drawn(charts::distinct(of_distinct.readings(), WIDTH, HEIGHT)).collect::<String>()
        }));
        Self { history, learning, strength, distinct }
    }
}

fn drawn(figures: Vec<Figure>) -> impl Iterator<Item = String> {
    figures.into_iter().map(|figure| chart(figure).into_string())
}

/// Embeds a figure in a page. The title is text of the page, which wraps on narrow screens and in wide fonts. A
/// sentence replaces axes without any point.
pub(crate) fn chart(mut figure: Figure) -> Markup {
    let titles = figure.columns.iter_mut().flatten().map(|chart| mem::take(&mut chart.title));
    let title: String = titles.collect();
    let mut series = figure.columns.iter().flatten().flat_map(|chart| &chart.series);
    html! {
        @if series.any(|series| !series.points.is_empty()) {
            div.chart role="img" aria-label=(title) {
                p { (title) }
                (PreEscaped(figure.svg().replacen(NAMESPACE, "", 1)))
            }
        } @else {
            p.empty { "Not measured yet: " (title) "." }
        }
    }
}

/// Returns the rated versions. A file with absurd numbers of games has no finite ratings.
fn rated(fit: &Fit) -> Vec<RatedVersion> {
    let finite = fit.ratings.iter().filter(|rated| rated.low.is_finite() && rated.high.is_finite());
    let version = |&Rated { player, elo, low, high, .. }: &Rated| match player {
        Player::Version(version) => Some(RatedVersion { version: version.0, elo, low, high }),
        _ => None,
    };
    finite.filter_map(version).collect()
}

#[cfg(test)]
mod tests {
    use figures::plot::{Axis, BLUE, Chart, Point, Series, Style};

    use super::*;

    #[test]
    fn the_title_of_a_chart_is_text_of_the_page_and_a_chart_without_points_is_a_sentence() {
        let shown = |points| {
            let series = vec![Series { label: String::new(), colour: BLUE, style: Style::Thick, points }];
            let (title, x_name, axis) = ("a < b".to_owned(), "minutes".to_owned(), Axis::new(0.0, 1.0));
            let only = Chart { title, width: WIDTH, height: HEIGHT, x_name, x: axis.clone(), y: axis, series };
            chart(Figure { title: String::new(), columns: vec![vec![only]] }).into_string()
        };
        let drawn = shown(vec![Point { x: 0.0, y: 1.0 }]);
        let start = "<div class=\"chart\" role=\"img\" aria-label=\"a &lt; b\"><p>a &lt; b</p><svg ";
        assert!(drawn.starts_with(start) && drawn.matches("a &lt; b").count() == 2, "{drawn}");
        assert_eq!(shown(Vec::new()), "<p class=\"empty\">Not measured yet: a &lt; b.</p>");
    }
}
