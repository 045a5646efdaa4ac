// Loads a SavedModel with the loader of TensorFlow Serving and runs it.
//
// Usage: runner MODEL_FOLDER MEMORY_LIMIT < requests > answers
//
// The limit is in bytes. The process ends when its standard input does.
//
// A string is a 32-bit length in the byte order of the machine, then bytes.
// A request is the name of a signature, a count, and that many pairs of an
// input name and a serialized TensorProto. An answer is an error message,
// empty for success, a count, and that many pairs of an output name and a
// TensorProto. The first answer, before any request, tells of the loading.

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor.pb.h"
#include "tensorflow/core/public/session_options.h"

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;
using tensorflow::Tensor;

bool ReadCount(uint32_t* count) {
  return std::fread(count, sizeof(*count), 1, stdin) == 1;
}

bool ReadString(std::string* text) {
  uint32_t size = 0;
  if (!ReadCount(&size)) return false;
  text->resize(size);
  return size == 0 || std::fread(&(*text)[0], size, 1, stdin) == 1;
}

bool ReadRequest(std::string* signature, Pairs* inputs) {
  uint32_t count = 0;
  if (!ReadString(signature) || !ReadCount(&count)) return false;
  inputs->resize(count);
  for (auto& input : *inputs) {
    if (!ReadString(&input.first) || !ReadString(&input.second)) return false;
  }
  return true;
}

void WriteCount(std::FILE* out, size_t count) {
  const uint32_t value = static_cast<uint32_t>(count);
  std::fwrite(&value, sizeof(value), 1, out);
}

void WriteString(std::FILE* out, const std::string& text) {
  WriteCount(out, text.size());
  std::fwrite(text.data(), 1, text.size(), out);
}

void WriteAnswer(std::FILE* out, const std::string& error,
                 const Pairs& outputs) {
  WriteString(out, error);
  WriteCount(out, outputs.size());
  for (const auto& output : outputs) {
    WriteString(out, output.first);
    WriteString(out, output.second);
  }
  std::fflush(out);
}

std::string Run(const tensorflow::SavedModelBundle& bundle,
                const std::string& name, const Pairs& inputs,
                Pairs* outputs) {
  const auto& signatures = bundle.GetSignatures();
  const auto found = signatures.find(name);
  if (found == signatures.end()) return "There is no signature " + name;
  std::vector<std::pair<std::string, Tensor>> feeds;
  for (const auto& input : inputs) {
    const auto& known = found->second.inputs();
    const auto spec = known.find(input.first);
    if (spec == known.end()) return "There is no input " + input.first;
    tensorflow::TensorProto proto;
    Tensor value;
    if (!proto.ParseFromString(input.second) || !value.FromProto(proto)) {
      return "Cannot read the tensor of input " + input.first;
    }
    feeds.emplace_back(spec->second.name(), value);
  }
  std::vector<std::string> fetches;
  for (const auto& output : found->second.outputs()) {
    outputs->emplace_back(output.first, "");
    fetches.push_back(output.second.name());
  }
  std::vector<Tensor> values;
  const auto status = bundle.GetSession()->Run(feeds, fetches, {}, &values);
  if (!status.ok()) {
    outputs->clear();
    return status.ToString();
  }
  for (size_t i = 0; i < values.size(); ++i) {
    tensorflow::TensorProto proto;
    if (values[i].dtype() == tensorflow::DT_STRING) {
      values[i].AsProtoField(&proto);
    } else {
      values[i].AsProtoTensorContent(&proto);
    }
    proto.SerializeToString(&(*outputs)[i].second);
  }
  return "";
}

// Ends this process when the other end of its input is gone, also amid a run.
void EndWithParent() {
  pollfd input = {0, 0, 0};
  while (poll(&input, 1, -1) < 1) {
  }
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "Usage: %s MODEL_FOLDER MEMORY_LIMIT\n", argv[0]);
    return 2;
  }
  std::thread(EndWithParent).detach();
  const rlim_t bytes = std::strtoull(argv[2], nullptr, 10);
  const rlimit limit = {bytes, bytes};
  setrlimit(RLIMIT_DATA, &limit);
  // Answers keep a pipe of their own; what a graph prints goes to stderr.
  std::FILE* out = fdopen(dup(1), "wb");
  dup2(2, 1);

  tensorflow::SavedModelBundle bundle;
  const auto status = tensorflow::LoadSavedModel(
      tensorflow::SessionOptions(), tensorflow::RunOptions(), argv[1],
      {"serve"}, &bundle);
  WriteAnswer(out, status.ok() ? "" : status.ToString(), {});
  if (!status.ok()) return 1;

  std::string signature;
  Pairs inputs;
  while (ReadRequest(&signature, &inputs)) {
    Pairs outputs;
    const std::string error = Run(bundle, signature, inputs, &outputs);
    WriteAnswer(out, error, outputs);
  }
  std::fclose(out);
  return 0;
}
