//! Messages of TensorFlow and TensorBoard, reduced to the written fields. The definitions are in TensorFlow's
//! `event.proto`, `summary.proto`, `histogram.proto`, `tensor.proto` and `tensor_shape.proto`, in `plugin_data.proto`
//! of TensorBoard's hparams plugin, and in `google.protobuf.Value`.

use std::collections::BTreeMap;

use prost::Message;

/// `tensorflow.Event`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Event {
    #[prost(double, tag = "1")]
    pub(crate) wall_time: f64,
    #[prost(int64, tag = "2")]
    pub(crate) step: i64,
    #[prost(oneof = "What", tags = "3, 5, 7")]
    pub(crate) what: Option<What>,
}

/// The contents of an event.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum What {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(Values),
    #[prost(message, tag = "7")]
    SessionLog(SessionLog),
}

/// `tensorflow.SessionLog`: with the status 1, `START`, readers drop all events from this step on.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SessionLog {
    #[prost(int32, tag = "1")]
    pub(crate) status: i32,
}

/// `tensorflow.Summary`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Values {
    #[prost(message, repeated, tag = "1")]
    pub(crate) value: Vec<Value>,
}

/// `tensorflow.Summary.Value`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Value {
    #[prost(string, tag = "1")]
    pub(crate) tag: String,
    #[prost(float, optional, tag = "2")]
    pub(crate) simple_value: Option<f32>,
    #[prost(message, optional, tag = "5")]
    pub(crate) histo: Option<Histogram>,
    #[prost(message, optional, tag = "8")]
    pub(crate) tensor: Option<Tensor>,
    #[prost(message, optional, tag = "9")]
    pub(crate) metadata: Option<Metadata>,
}

/// `tensorflow.HistogramProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Histogram {
    #[prost(double, tag = "1")]
    pub(crate) min: f64,
    #[prost(double, tag = "2")]
    pub(crate) max: f64,
    #[prost(double, tag = "3")]
    pub(crate) num: f64,
    #[prost(double, tag = "4")]
    pub(crate) sum: f64,
    #[prost(double, tag = "5")]
    pub(crate) sum_squares: f64,
    /// Upper limit of each bucket, ascending.
    #[prost(double, repeated, tag = "6")]
    pub(crate) bucket_limit: Vec<f64>,
    #[prost(double, repeated, tag = "7")]
    pub(crate) bucket: Vec<f64>,
}

/// `tensorflow.TensorProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Tensor {
    /// 1 is `DT_FLOAT`.
    #[prost(int32, tag = "1")]
    pub(crate) dtype: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) shape: Option<Shape>,
}

/// `tensorflow.TensorShapeProto`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Shape {
    #[prost(message, repeated, tag = "2")]
    pub(crate) dim: Vec<Dim>,
}

/// `tensorflow.TensorShapeProto.Dim`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Dim {
    #[prost(int64, tag = "1")]
    pub(crate) size: i64,
}

/// `tensorflow.SummaryMetadata`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Metadata {
    #[prost(message, optional, tag = "1")]
    pub(crate) plugin_data: Option<PluginData>,
}

/// `tensorflow.SummaryMetadata.PluginData`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PluginData {
    #[prost(string, tag = "1")]
    pub(crate) plugin_name: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) content: Vec<u8>,
}

/// `tensorboard.hparams.HParamsPluginData`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct HparamsPluginData {
    #[prost(int32, tag = "1")]
    pub(crate) version: i32,
    #[prost(message, optional, tag = "3")]
    pub(crate) session_start_info: Option<SessionStartInfo>,
}

/// `tensorboard.hparams.SessionStartInfo`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SessionStartInfo {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(crate) hparams: BTreeMap<String, Setting>,
    #[prost(string, tag = "4")]
    pub(crate) group_name: String,
    #[prost(double, tag = "5")]
    pub(crate) start_time_secs: f64,
}

/// `google.protobuf.Value`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Setting {
    #[prost(oneof = "Kind", tags = "2, 3, 4")]
    pub(crate) kind: Option<Kind>,
}

/// The types of settings.
#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Kind {
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(string, tag = "3")]
    Text(String),
    #[prost(bool, tag = "4")]
    Bool(bool),
}
