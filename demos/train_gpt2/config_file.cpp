// config.json, as Hugging Face's.
#include <cmath>
#include <cstdio>

#include "checkpoint.h"
#include "files.h"

namespace gpt2 {
namespace {

using sizes = std::vector<std::pair<const char*, int64_t>>;

std::string entries(const sizes& all) {
  std::string text;
  for (const auto& [name, size] : all) {
    text += "  \"" + std::string(name) + "\": " + std::to_string(size) + ",\n";
  }
  // No token is special here: transformers' own would be some, whatever the vocabulary.
  return text + "  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n";
}

std::string entry(const char* name, double value, const char* end) {
  char text[64];
  std::snprintf(text, sizeof(text), "  \"%s\": %.9g%s", name, value, end);
  return text;
}

std::string gpt2_text(const config& c) {
  return "{\n  \"model_type\": \"gpt2\",\n  \"architectures\": [\"GPT2LMHeadModel\"],\n"
         "  \"activation_function\": \"gelu_new\",\n  \"tie_word_embeddings\": true,\n"
         "  \"embd_pdrop\": 0.0,\n  \"attn_pdrop\": 0.0,\n  \"resid_pdrop\": 0.0,\n" +
         entries({{"vocab_size", c.vocabulary},
                  {"n_positions", c.positions},
                  {"n_embd", c.width},
                  {"n_layer", c.layers},
                  {"n_head", c.heads}}) +
         entry("layer_norm_epsilon", double(c.epsilon), "\n}\n");
}

std::string llama_text(const config& c) {
  return "{\n  \"model_type\": \"llama\",\n  \"architectures\": [\"LlamaForCausalLM\"],\n"
         "  \"hidden_act\": \"silu\",\n  \"tie_word_embeddings\": true,\n"
         "  \"attention_bias\": false,\n  \"mlp_bias\": false,\n" +
         entries({{"vocab_size", c.vocabulary},
                  {"max_position_embeddings", c.positions},
                  {"hidden_size", c.width},
                  {"intermediate_size", c.mlp_width()},
                  {"num_hidden_layers", c.layers},
                  {"num_attention_heads", c.heads},
                  {"num_key_value_heads", c.heads_of_keys()},
                  {"head_dim", c.head_dim()}}) +
         entry("rope_theta", c.theta, ",\n") + entry("rms_norm_eps", double(c.epsilon), "\n}\n");
}

// The entries of a config.json, each checked before it is used.
class reader {
 public:
  explicit reader(const std::string& folder) : file_(folder + "/config.json") {
    try {
      entries_ = json::parse(file_.text());
    } catch (const error& why) {
      file_.refuse(why.what());
    }
  }

  std::string text(const char* name, const std::string& otherwise) const {
    const json* const found = entries_.find(name);
    return found == nullptr ? otherwise : found->text;
  }
  int64_t size(const char* name) const {
    const json* const found = entries_.find(name);
    const double value = found == nullptr ? -1 : found->number;
    if (!(value >= 1 && value <= 1 << 20 && value == std::floor(value))) {
      file_.refuse(std::string(name) + " must be a whole number of 1 to 1048576");
    }
    return int64_t(value);
  }
  bool has(const char* name) const {
    const json* const found = entries_.find(name);
    return found != nullptr && found->is != json::kind::null;
  }
  double number(const char* name, double otherwise) const {
    return has(name) ? entries_.find(name)->number : otherwise;
  }
  void needs_flag(const char* name, bool value, bool otherwise) const {
    const bool got = has(name) ? entries_.find(name)->flag : otherwise;
    if (got != value) file_.refuse(std::string(name) + " must be " + (value ? "true" : "false"));
  }
  float epsilon(const char* name) const {
    const auto value = static_cast<float>(number(name, 1e-5));
    if (!(value > 0 && value < 1)) file_.refuse(std::string(name) + " must be in 0 … 1");
    return value;
  }
  // theta, of the entry itself or, as newer configurations have it, of rope_parameters.
  double theta() const {
    const json* rope = entries_.find(has("rope_parameters") ? "rope_parameters" : "rope_scaling");
    if (rope != nullptr && rope->is == json::kind::object) {
      const json* kind = rope->find("rope_type");
      if (kind == nullptr) kind = rope->find("type");
      if (kind != nullptr && kind->text != "default") {
        file_.refuse("the rotary embedding must be the default one, got " + kind->text);
      }
    }
    const json* const inner = rope == nullptr ? nullptr : rope->find("rope_theta");
    const double value = inner != nullptr ? inner->number : number("rope_theta", 10000);
    if (!(value >= 1 && value <= 1e12)) file_.refuse("rope_theta must be 1 to 1e12");
    return value;
  }
  const mapped_file& file() const { return file_; }

 private:
  mapped_file file_;
  json entries_;
};

config read_gpt2(const reader& from) {
  const std::string gelu = from.text("activation_function", "gelu_new");
  if (gelu != "gelu_new" && gelu != "gelu_pytorch_tanh") {
    from.file().refuse("activation_function must be gelu_new, got " + gelu);
  }
  config c{from.size("vocab_size"), from.size("n_positions"), from.size("n_embd"),
           from.size("n_layer"), from.size("n_head")};
  if (from.has("n_inner") && from.size("n_inner") != 4 * c.width) {
    from.file().refuse("n_inner must be four times n_embd");
  }
  from.needs_flag("tie_word_embeddings", true, true);
  c.epsilon = from.epsilon("layer_norm_epsilon");
  return c;
}

config read_llama(const reader& from) {
  if (const std::string act = from.text("hidden_act", "silu"); act != "silu") {
    from.file().refuse("hidden_act must be silu, got " + act);
  }
  config c{from.size("vocab_size"), from.size("max_position_embeddings"), from.size("hidden_size"),
           from.size("num_hidden_layers"), from.size("num_attention_heads")};
  c.is_llama = true;
  c.hidden = from.size("intermediate_size");
  c.key_heads = from.has("num_key_value_heads") ? from.size("num_key_value_heads") : c.heads;
  if (from.has("head_dim") && from.size("head_dim") * c.heads != c.width) {
    from.file().refuse("head_dim must be hidden_size / num_attention_heads");
  }
  from.needs_flag("tie_word_embeddings", true, false);
  for (const char* const name : {"attention_bias", "mlp_bias"}) {
    from.needs_flag(name, false, false);
  }
  c.epsilon = from.epsilon("rms_norm_eps");
  c.theta = from.theta();
  return c;
}

}  // namespace

std::string config_text(const config& c) { return c.is_llama ? llama_text(c) : gpt2_text(c); }

config read_config(const std::string& folder) {
  const reader from(folder);
  const std::string kind = from.text("model_type", "");
  if (kind != "gpt2" && kind != "llama") {
    from.file().refuse("model_type must be gpt2 or llama, got " + kind);
  }
  const config c = kind == "llama" ? read_llama(from) : read_gpt2(from);
  if (const std::string why = why_not(c); !why.empty()) from.file().refuse(why);
  return c;
}

}  // namespace gpt2
