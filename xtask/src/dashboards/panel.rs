//! What a dashboard is, without what Grafana needs to be told besides.

/// Columns of a row; panels that do not fit go below.
pub(super) const COLUMNS: u32 = 24;

/// A page.
#[derive(Debug)]
pub(super) struct Dashboard {
    /// Of the file, and what links to it.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    pub(super) rows: Vec<Row>,
}

/// Panels under a heading.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) title: &'static str,
    pub(super) panels: Vec<Panel>,
}

/// What numbers are, as Grafana calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// 0 to 1, shown in per cent.
    Share,
    Seconds,
    Bytes,
    /// A number of things, or of things per second: 12.3 K.
    Count,
    /// A number of things that can be told apart, such as a version: 12345.
    Whole,
    /// Neither large nor small.
    Plain,
}

impl Unit {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Share => "percentunit",
            Self::Seconds => "s",
            Self::Bytes => "bytes",
            Self::Count => "short",
            Self::Whole | Self::Plain => "none",
        }
    }
}

/// How it is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A line for each series.
    Lines,
    /// Areas on top of each other, for parts of a whole.
    Stacked,
    /// The newest number.
    Number,
    /// How often each bucket of a histogram was hit.
    Heatmap,
}

/// A query and what its series are called.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) legend: &'static str,
    pub(super) expression: String,
}

/// One picture.
#[derive(Debug)]
pub(super) struct Panel {
    pub(super) kind: Kind,
    pub(super) title: &'static str,
    pub(super) unit: Unit,
    /// What it shows, and what to conclude.
    pub(super) description: &'static str,
    pub(super) queries: Vec<Query>,
    pub(super) is_logarithmic: bool,
}

impl Panel {
    fn new(kind: Kind, title: &'static str, unit: Unit, description: &'static str) -> Self {
        Self { kind, title, unit, description, queries: Vec::new(), is_logarithmic: false }
    }

    pub(super) fn lines(title: &'static str, unit: Unit, description: &'static str) -> Self {
        Self::new(Kind::Lines, title, unit, description)
    }

    pub(super) fn stacked(title: &'static str, unit: Unit, description: &'static str) -> Self {
        Self::new(Kind::Stacked, title, unit, description)
    }

    pub(super) fn number(title: &'static str, unit: Unit, description: &'static str) -> Self {
        Self::new(Kind::Number, title, unit, description)
    }

    /// How the observations of a histogram are spread over its buckets.
    pub(super) fn heatmap(title: &'static str, unit: Unit, description: &'static str, histogram: &str) -> Self {
        let expression = format!("sum by (le) (increase({histogram}_bucket[$__rate_interval]))");
        Self::new(Kind::Heatmap, title, unit, description).query("{{le}}", expression)
    }

    /// Half, nine tenths and all but one in a hundred of a histogram's observations are below these.
    pub(super) fn quantiles(
        title: &'static str,
        unit: Unit,
        description: &'static str,
        histogram: &str,
        by: Option<&str>,
    ) -> Self {
        let labels = by.map_or_else(|| "le".to_owned(), |label| format!("{label}, le"));
        let quantile = |share: &str| {
            format!("histogram_quantile({share}, sum by ({labels}) (rate({histogram}_bucket[$__rate_interval])))")
        };
        let [half, most, nearly_all] = match by {
            None => ["50 %", "90 %", "99 %"],
            Some("table") => ["{{table}} 50 %", "{{table}} 90 %", "{{table}} 99 %"],
            Some(_) => ["{{instance}} 50 %", "{{instance}} 90 %", "{{instance}} 99 %"],
        };
        Self::lines(title, unit, description)
            .query(half, quantile("0.5"))
            .query(most, quantile("0.9"))
            .query(nearly_all, quantile("0.99"))
    }

    pub(super) fn query(mut self, legend: &'static str, expression: impl Into<String>) -> Self {
        self.queries.push(Query { legend, expression: expression.into() });
        self
    }

    pub(super) fn logarithmic(mut self) -> Self {
        self.is_logarithmic = true;
        self
    }

    /// Columns, of [`COLUMNS`].
    pub(super) fn width(&self) -> u32 {
        if self.kind == Kind::Number { 4 } else { 8 }
    }

    /// Steps of Grafana's grid.
    pub(super) fn height(&self) -> u32 {
        if self.kind == Kind::Number { 4 } else { 8 }
    }
}
