use prost::Message as _;

use crate::histogram::histogram;
use crate::messages::{Dim, HparamsPluginData, Metadata, PluginData, SessionStartInfo, Shape, Tensor, Value, Values};
use crate::settings;

/// Type `DT_FLOAT` of a tensor.
const FLOAT: i32 = 1;

/// Values of one event.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    pub(crate) values: Values,
}

impl Summary {
    /// Creates a summary without values.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a scalar, in the format's single precision.
    #[must_use]
    pub fn scalar(mut self, tag: impl Into<String>, value: f64) -> Self {
        self.values.value.push(Value { tag: tag.into(), simple_value: Some(value as f32), ..Value::default() });
        self
    }

    /// Adds the distribution of the finite `values`, in 64 buckets of equal width; nothing if there are none.
    #[must_use]
    pub fn histogram(mut self, tag: impl Into<String>, values: &[f32]) -> Self {
        if let Some(histogram) = histogram(values) {
            self.values.value.push(Value { tag: tag.into(), histo: Some(histogram), ..Value::default() });
        }
        self
    }

    /// Adds the settings of a run, which TensorBoard shows under *HParams*: sections become dotted keys. A resumed
    /// run has the same `group`.
    #[must_use]
    pub fn settings(mut self, group: &str, settings: &serde_json::Value, unix_seconds: f64) -> Self {
        let start = SessionStartInfo {
            hparams: settings::flat(settings),
            group_name: group.to_owned(),
            start_time_secs: unix_seconds,
        };
        let content = HparamsPluginData { version: 0, session_start_info: Some(start) }.encode_to_vec();
        let plugin_data = Some(PluginData { plugin_name: "hparams".to_owned(), content });
        // Readers skip values without content, so TensorBoard itself writes an empty tensor here.
        let tensor = Some(Tensor { dtype: FLOAT, shape: Some(Shape { dim: vec![Dim { size: 0 }] }) });
        self.values.value.push(Value {
            tag: "_hparams_/session_start_info".to_owned(),
            tensor,
            metadata: Some(Metadata { plugin_data }),
            ..Value::default()
        });
        self
    }

    /// Returns true if there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.value.is_empty()
    }
}
