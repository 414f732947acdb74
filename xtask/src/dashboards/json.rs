//! A dashboard as Grafana's JSON: one line for each panel, so that a change of a panel is a change of a line.
//!
//! The classic model, which every Grafana since 9 reads; 39 is its version in Grafana 11, and newer ones migrate it.

use serde_json::{Value, json};

use super::panel::{COLUMNS, Dashboard, Kind, Panel, Query, Unit};

const SCHEMA_VERSION: u32 = 39;

/// The whole file.
pub(super) fn text(dashboard: &Dashboard) -> String {
    let Value::Object(around) = around(dashboard) else { unreachable!("it is written as an object") };
    let mut lines: Vec<String> = around.iter().map(|(key, value)| format!("  \"{key}\": {value}")).collect();
    let panels: Vec<String> = panels(dashboard).iter().map(|panel| format!("    {panel}")).collect();
    lines.push(format!("  \"panels\": [\n{}\n  ]", panels.join(",\n")));
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}

fn around(dashboard: &Dashboard) -> Value {
    json!({
        "uid": format!("zerofleet-{}", dashboard.name),
        "title": dashboard.title,
        "description": dashboard.description,
        "tags": ["zerofleet"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": { "from": "now-30m", "to": "now" },
        "timezone": "browser",
        "annotations": { "list": [] },
        // Whoever imports it elsewhere chooses a source of data there.
        "templating": { "list": [{
            "name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus", "refresh": 1,
        }] },
        "links": [{
            "title": "zerofleet", "type": "dashboards", "tags": ["zerofleet"], "url": "", "icon": "external link",
            "tooltip": "", "asDropdown": false, "includeVars": true, "keepTime": true, "targetBlank": false,
        }],
    })
}

/// Rows and panels from the top left, with the numbers and places that Grafana wants.
fn panels(dashboard: &Dashboard) -> Vec<Value> {
    let (mut found, mut y): (Vec<Value>, u32) = (Vec::new(), 0);
    for row in &dashboard.rows {
        found.push(json!({
            "id": found.len() + 1, "type": "row", "title": row.title, "collapsed": false, "panels": [],
            "gridPos": { "x": 0, "y": y, "w": COLUMNS, "h": 1 },
        }));
        y += 1;
        let (mut x, mut height) = (0, 0);
        for panel in &row.panels {
            if x + panel.width() > COLUMNS {
                (x, y, height) = (0, y + height, 0);
            }
            let place = json!({ "x": x, "y": y, "w": panel.width(), "h": panel.height() });
            found.push(drawn(panel, found.len() + 1, &place));
            x += panel.width();
            height = height.max(panel.height());
        }
        y += height;
    }
    found
}

fn drawn(panel: &Panel, id: usize, place: &Value) -> Value {
    let source = json!({ "type": "prometheus", "uid": "${datasource}" });
    let targets = panel.queries.iter().zip('A'..='Z').map(|(Query { legend, expression }, letter)| {
        let format = if panel.kind == Kind::Heatmap { "heatmap" } else { "time_series" };
        json!({
            "refId": letter.to_string(), "datasource": source, "expr": expression, "legendFormat": legend,
            "format": format, "range": true,
        })
    });
    let mut defaults = json!({ "unit": panel.unit.name() });
    if panel.unit == Unit::Share {
        defaults["min"] = json!(0);
        defaults["max"] = json!(1);
    }
    let (kind, options) = match panel.kind {
        Kind::Lines | Kind::Stacked => {
            defaults["custom"] = line(panel);
            ("timeseries", lines_options())
        }
        Kind::Number => ("stat", number_options()),
        Kind::Heatmap => ("heatmap", heatmap_options(panel)),
    };
    json!({
        "id": id, "type": kind, "title": panel.title, "description": panel.description, "gridPos": place,
        "datasource": source, "targets": targets.collect::<Vec<_>>(),
        "fieldConfig": { "defaults": defaults, "overrides": [] }, "options": options,
    })
}

fn line(panel: &Panel) -> Value {
    let is_stacked = panel.kind == Kind::Stacked;
    let mut line = json!({
        "drawStyle": "line", "lineWidth": 1, "fillOpacity": if is_stacked { 50 } else { 0 }, "showPoints": "auto",
        "stacking": { "mode": if is_stacked { "normal" } else { "none" }, "group": "A" },
    });
    if panel.is_logarithmic {
        line["scaleDistribution"] = json!({ "type": "log", "log": 10 });
    }
    line
}

fn lines_options() -> Value {
    json!({
        "legend": { "displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": [] },
        "tooltip": { "mode": "multi", "sort": "desc" },
    })
}

fn number_options() -> Value {
    json!({
        "reduceOptions": { "values": false, "calcs": ["lastNotNull"], "fields": "" },
        "orientation": "auto", "textMode": "auto", "colorMode": "none", "graphMode": "area", "justifyMode": "auto",
    })
}

fn heatmap_options(panel: &Panel) -> Value {
    json!({
        "calculate": false, "cellGap": 1, "showValue": "never", "legend": { "show": true },
        "color": { "mode": "scheme", "scheme": "Blues", "steps": 64, "reverse": false, "exponent": 0.5, "fill": "blue" },
        "exemplars": { "color": "orange" }, "filterValues": { "le": 1e-9 }, "rowsFrame": { "layout": "auto" },
        "tooltip": { "mode": "single", "yHistogram": false, "showColorScale": false },
        "yAxis": { "axisPlacement": "left", "unit": panel.unit.name() },
    })
}
