use super::read;

fn write(folder: &std::path::Path, manifest: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = folder.join("v000001.json");
    std::fs::write(&path, manifest).unwrap();
    std::fs::write(folder.join("v000001.safetensors"), bytes).unwrap();
    path
}

fn manifest(bytes: &[u8]) -> String {
    let digest = weights::Digest::of(bytes);
    format!(
        r#"{{"version":1,"training_step":5,"digest":"{digest}","size_bytes":{},"architecture":{{"game":"hex-3",
        "planes":2,"height":3,"width":3,"actions":9,"channels":8,"blocks":1}}}}"#,
        bytes.len()
    )
}

#[test]
fn a_published_version_is_read_from_its_manifest_and_the_bytes_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let published = read(&write(folder.path(), &manifest(b"bytes"), b"bytes"), 100).unwrap();
    assert_eq!((published.manifest.version.0, &published.bytes[..]), (1, &b"bytes"[..]));
}

#[test]
fn bytes_that_are_not_those_of_the_manifest_are_refused_with_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let error = |manifest: &str, bytes: &[u8], most| {
        format!("{:#}", read(&write(folder.path(), manifest, bytes), most).unwrap_err())
    };
    assert!(error(&manifest(b"bytes"), b"other", 100).contains("v000001.safetensors is not the file"));
    assert!(error(&manifest(b"bytes"), b"bytes", 4).contains("inference.weights_bytes_max"));
    assert!(error("{", b"bytes", 100).contains("parse the manifest"));
    assert!(format!("{:#}", read(&folder.path().join("none.json"), 100).unwrap_err()).contains("none.json"));
}
