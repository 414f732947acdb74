use crate::messages::{
    Attribute, Dimension, Graph, Model, Node, OperatorSet, Shape, Tensor, TensorType, Type, ValueInfo,
};

/// Version of the operators.
const OPERATORS: i64 = 17;
/// Version of the file format that came with these operators.
const IR: i64 = 8;
/// Name of the batch size in shapes.
const BATCH: &str = "N";

/// Element type of a tensor, with the number in `onnx.TensorProto.DataType`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Element {
    F32 = 1,
    I64 = 7,
    Bool = 9,
}

/// A tensor in a graph: an input, a constant, or the result of a node.
#[derive(Debug, Clone)]
pub(crate) struct Value(String);

/// A graph under construction. Nodes are in order of computation, and all names differ.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    graph: Graph,
    /// Number of names made so far.
    names: usize,
}

impl Builder {
    /// Adds an input `[N, …]`.
    pub(crate) fn input(&mut self, name: &str, element: Element, dims: &[usize]) -> Value {
        self.graph.input.push(described(name, element, dims));
        Value(name.to_owned())
    }

    /// Adds a value `[N, …]` in float32 to the outputs.
    pub(crate) fn output(&mut self, value: &Value, name: &str, dims: &[usize]) {
        self.push("Identity", &[value], vec![name.to_owned()], Vec::new());
        self.graph.output.push(described(name, Element::F32, dims));
    }

    /// Adds a constant tensor.
    pub(crate) fn weights(&mut self, name: &str, dims: &[usize], values: &[f32]) -> Value {
        let raw_data = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(name.to_owned(), Element::F32, dims, raw_data)
    }

    /// Adds a constant number.
    pub(crate) fn number(&mut self, value: f64) -> Value {
        let name = self.fresh("number");
        self.weights(&name, &[], &[value as f32])
    }

    /// Adds constant integers.
    pub(crate) fn integers(&mut self, dims: &[usize], values: &[i64]) -> Value {
        let name = self.fresh("integers");
        self.constant(name, Element::I64, dims, values.iter().flat_map(|value| value.to_le_bytes()).collect())
    }

    /// Adds a node without attributes.
    pub(crate) fn apply(&mut self, operator: &str, inputs: &[&Value]) -> Value {
        self.node(operator, inputs, Vec::new())
    }

    /// Adds a node.
    pub(crate) fn node(&mut self, operator: &str, inputs: &[&Value], attributes: Vec<Attribute>) -> Value {
        let name = self.fresh(operator);
        self.push(operator, inputs, vec![name.clone()], attributes);
        Value(name)
    }

    /// Divides a value along an axis into parts of these sizes.
    pub(crate) fn split<const PARTS: usize>(&mut self, x: &Value, axis: i64, sizes: [usize; PARTS]) -> [Value; PARTS] {
        let sizes = self.integers(&[PARTS], &sizes.map(size));
        let parts: [String; PARTS] = std::array::from_fn(|_| self.fresh("Split"));
        self.push("Split", &[x, &sizes], parts.to_vec(), vec![Attribute::int("axis", axis)]);
        parts.map(Value)
    }

    /// Concatenates values along the second axis.
    pub(crate) fn concatenate(&mut self, parts: &[&Value]) -> Value {
        self.node("Concat", parts, vec![Attribute::int("axis", 1)])
    }

    /// Reshapes a value. A size of 0 is the size of the same axis before, and −1 what is left.
    pub(crate) fn reshape(&mut self, x: &Value, dims: &[i64]) -> Value {
        let dims = self.integers(&[dims.len()], dims);
        self.apply("Reshape", &[x, &dims])
    }

    /// Permutes the axes.
    pub(crate) fn transpose(&mut self, x: &Value, axes: &[i64]) -> Value {
        self.node("Transpose", &[x], vec![Attribute::ints("perm", axes)])
    }

    /// Turns `[N, …]` into `[N, all the rest]`.
    pub(crate) fn flatten(&mut self, x: &Value) -> Value {
        self.node("Flatten", &[x], vec![Attribute::int("axis", 1)])
    }

    /// Reduces axes by `ReduceMean`, `ReduceMin` or `ReduceMax`; they stay with the size 1.
    pub(crate) fn reduce(&mut self, operator: &str, x: &Value, axes: &[i64]) -> Value {
        self.node(operator, &[x], vec![Attribute::ints("axes", axes)])
    }

    /// Returns the shares of the last axis.
    pub(crate) fn softmax(&mut self, logits: &Value) -> Value {
        self.node("Softmax", &[logits], vec![Attribute::int("axis", -1)])
    }

    /// Returns the model of this graph.
    pub(crate) fn model(self, name: &str) -> Model {
        Model {
            ir_version: IR,
            producer_name: "zerofleet".to_owned(),
            graph: Some(Graph { name: name.to_owned(), ..self.graph }),
            opset_import: vec![OperatorSet { version: OPERATORS }],
        }
    }

    fn constant(&mut self, name: String, element: Element, dims: &[usize], raw_data: Vec<u8>) -> Value {
        let dims = dims.iter().map(|&dim| size(dim)).collect();
        self.graph.initializer.push(Tensor { dims, data_type: element as i32, name: name.clone(), raw_data });
        Value(name)
    }

    fn push(&mut self, operator: &str, inputs: &[&Value], output: Vec<String>, attribute: Vec<Attribute>) {
        let (name, op_type) = (format!("node_{}", self.graph.node.len()), operator.to_owned());
        let input = inputs.iter().map(|value| value.0.clone()).collect();
        self.graph.node.push(Node { input, output, name, op_type, attribute });
    }

    fn fresh(&mut self, of: &str) -> String {
        self.names += 1;
        format!("{of}_{}", self.names)
    }
}

/// Converts a size to the type of ONNX.
pub(crate) fn size(size: usize) -> i64 {
    i64::try_from(size).expect("sizes of a checked architecture are small")
}

fn described(name: &str, element: Element, dims: &[usize]) -> ValueInfo {
    let batch = Dimension { dim_param: Some(BATCH.to_owned()), ..Dimension::default() };
    let of_size = |&dim: &usize| Dimension { dim_value: Some(size(dim)), ..Dimension::default() };
    let shape = Shape { dim: std::iter::once(batch).chain(dims.iter().map(of_size)).collect() };
    let tensor_type = Some(TensorType { elem_type: element as i32, shape: Some(shape) });
    ValueInfo { name: name.to_owned(), kind: Some(Type { tensor_type }) }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    /// The model of the test below, as the Python package of ONNX serialises it.
    const SERIALISED: &str = "080812097a65726f666c6565743a9a010a2b0a01780a0177120647656d6d5f311a066e6f64655f30220447656d6d\
        2a0d0a067472616e73421801a001020a1d0a0647656d6d5f311201791a066e6f64655f3122084964656e746974791203616e792a1b0802\
        080210014201774a100000803f0000004000004040000080405a140a0178120f0a0d080112090a0312014e0a02080262140a0179120f0a\
        0d080112090a0312014e0a02080242021011";

    #[test]
    fn a_model_has_the_bytes_of_the_reference_implementation() {
        let mut graph = Builder::default();
        let x = graph.input("x", Element::F32, &[2]);
        let weights = graph.weights("w", &[2, 2], &[1.0, 2.0, 3.0, 4.0]);
        let y = graph.node("Gemm", &[&x, &weights], vec![Attribute::int("transB", 1)]);
        graph.output(&y, "y", &[2]);
        let bytes = graph.model("any").encode_to_vec();
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, SERIALISED);
    }
}
