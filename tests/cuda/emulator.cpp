#include "tests/cuda/emulator.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <utility>

#include "tenon/backend/cuda/driver/included_headers.h"
#include "tenon/core/error.h"
#include "tests/cuda/emulated_block.h"

namespace tenon::cuda::test {
namespace fs = std::filesystem;
namespace {

constexpr char kWhere[] = "emulator";

std::string read_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// 128 bits of FNV-1a, as two streams of 64.
std::string hash_of(const std::string& text) {
  uint64_t a = 0xcbf29ce484222325u, b = 0x84222325cbf29ce4u;
  for (const char c : text) {
    a = (a ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    b = (b ^ static_cast<unsigned char>(c)) * 0x10000000233u + 1;
  }
  std::ostringstream out;
  out << std::hex << a << b;
  return out.str();
}

struct Header {
  std::string hash;
  std::vector<std::string> includes;
};

// A hash of the headers below `roots` that a kernel's source includes, by their contents: the same for every tree.
std::string hash_headers(const std::string& text, const std::vector<std::string>& roots) {
  static std::map<std::string, Header> read;  // by path
  const auto find = [&](const std::string& name) -> Header* {
    const auto root = std::find_if(roots.begin(), roots.end(),
                                   [&](const std::string& folder) { return fs::exists(fs::path(folder) / name); });
    if (root == roots.end()) return nullptr;
    const std::string path = fs::path(*root) / name;
    if (const auto it = read.find(path); it != read.end()) return &it->second;
    const std::string contents = read_text(path);
    return &(read[path] = {hash_of(contents), included_names(contents)});
  };
  const auto known = [&](const std::string& name) {
    const Header* header = find(name);
    return header ? &header->includes : nullptr;
  };
  std::string all;
  for (const std::string& name : all_included(text, known)) all += name + ' ' + find(name)->hash + '\n';
  return hash_of(all);
}

fs::path cache_folder() {
  fs::path folder = fs::temp_directory_path() / ("tenon-emulator-" + std::to_string(getuid()));
  fs::create_directories(folder);
  return folder;
}

// A unique name next to `path`.
std::string own_name(const fs::path& path, const char* ending) {
  return path.string() + "." + std::to_string(getpid()) + ending;
}

// Compiles the source `in` to `object`, by a command that lacks both names. The object appears atomically, whoever else
// makes it.
void compile(const std::string& command, const std::string& name, const std::string& in, const fs::path& object) {
  const std::string log = own_name(object, ".log"), made = own_name(object, ".tmp");
  const std::string line = command + " '" + in + "' -o '" + made + "' > '" + log + "' 2>&1";
  const int status = std::system(line.c_str());  // NOLINT(cert-env33-c,bugprone-command-processor)
  TENON_CHECK(Device, status == 0, name) << "does not compile for the host:\n" << read_text(log) << read_text(in);
  fs::rename(made, object);
  fs::remove(log);
}

// Precompiles what every kernel includes: half of a kernel's compile time, most of it for standard headers that nodes
// include. Named by path and date as well, because compilers refuse such a file once its headers were moved or touched.
fs::path prelude(const std::string& command, const std::vector<std::string>& roots) {
  constexpr const char* kText =
      "#define TENON_DEVICE\n#include \"tenon/backend/cuda/device/elements.h\"\n"
      "#include \"tenon/backend/cuda/device/launches/lets.h\"\n"
      "#include \"tenon/expr/nodes/arithmetic.h\"\n";
  std::string facts = command + hash_headers(kText, roots);
  for (const std::string& root : roots)
    for (const char* folder : {"/tenon/backend/cuda/device", "/tenon/expr", "/tenon/core"})
      if (fs::exists(root + folder))
        for (const auto& entry : fs::recursive_directory_iterator(root + folder))
          facts += entry.path().string() + std::to_string(entry.last_write_time().time_since_epoch().count());
  fs::path header = cache_folder() / (hash_of(facts) + ".h");
  const fs::path compiled = header.string() + ".gch";
  if (fs::exists(compiled)) return header;
  const std::string written = own_name(header, ".txt");
  std::ofstream(written) << kText;
  std::error_code another_was_first;
  fs::create_hard_link(written, header, another_was_first);
  fs::remove(written);
  compile(command + " -x c++-header", "prelude", header, compiled);
  return header;
}

// The shared object of a source, compiled if absent.
fs::path compile(const KernelSource& source, const EmulatorOptions& options) {
  std::string command = std::string(TENON_HOST_COMPILER) +
                        " -std=c++20 -O1 -fPIC -fvisibility=hidden -fno-math-errno -fno-trapping-math"
                        " -DTENON_DEVICE_ON_HOST";
  const std::string headers = hash_headers(source.code, options.includes);
  fs::path object = cache_folder() / (hash_of(command + '\n' + headers + '\n' + source.code) + ".so");
  if (fs::exists(object)) return object;
  for (const std::string& root : options.includes) command += " -I'" + root + "'";
  const fs::path header = prelude(command, options.includes);
  const std::string text = own_name(object, ".cu");
  std::ofstream(text) << source.code;
  // Libraries need not be searched: this program has loaded those that a kernel calls.
  compile(command + " -shared -nodefaultlibs -include '" + header.string() + "' -x c++", source.name, text, object);
  fs::remove(text);
  return object;
}

// The blocks of a cluster, made once. `beside`: while others are running.
std::span<Block* const> shared_blocks(unsigned count, bool beside = false) {
  static std::vector<std::unique_ptr<Block>> all_blocks[2];
  static std::vector<Block*> all_pointers[2];
  auto& blocks = all_blocks[beside];
  auto& pointers = all_pointers[beside];
  while (blocks.size() < count) {
    blocks.push_back(std::make_unique<Block>());
    pointers.push_back(blocks.back().get());
  }
  return std::span(pointers).first(count);
}

}  // namespace

std::vector<std::string> EmulatorOptions::default_includes() {
  std::vector<std::string> roots;
  std::istringstream all(TENON_DEVICE_INCLUDES);
  for (std::string root; std::getline(all, root, ':');) roots.push_back(root);
  return roots;
}

// Work in the order in which it was enqueued.
struct Emulator::Work {
  std::deque<std::function<void()>> waiting;
  int64_t put = 0, done = 0;

  void run_until(int64_t count) {
    while (done < count && !waiting.empty()) {
      const std::function<void()> one = std::move(waiting.front());
      waiting.pop_front();
      ++done;
      one();
    }
  }
};

// A stream and what runs beside it; or both while being recorded.
class Emulator::Queue : public Stream {
 public:
  Queue(Emulator& on, std::shared_ptr<Tape> tape, bool beside = false)
      : on_(on), tape_(std::move(tape)), is_beside_(beside) {}

  const Emulator& emulator() const { return on_; }
  static Queue& of(Stream& stream) { return dynamic_cast<Queue&>(stream); }
  void add(std::function<void()> one);
  void synchronize() override {
    work_->run_until(work_->put);
    on_.run_late();
  }
  std::shared_ptr<const Event> mark() override;
  void wait(const Event& event) override;
  Queue& beside() override {
    if (!beside_) beside_ = std::make_unique<Queue>(on_, tape_, true);
    return *beside_;
  }

 private:
  struct Mark : Event {
    std::shared_ptr<Work> work;
    int64_t at = 0;
    Emulator* on = nullptr;
    const Tape* tape = nullptr;  // the tape that it is a point of, at index `at`
    int64_t puts_beside = -1;    // and how much had been put beside the stream, if it is a point there
  };

  Emulator& on_;
  std::shared_ptr<Tape> tape_;
  bool is_beside_;
  std::shared_ptr<Work> work_ = std::make_shared<Work>();
  std::unique_ptr<Queue> beside_;
};

// A recording, in enqueueing order: on a stream, or beside it.
struct Emulator::Tape : Replay {
  using Marks = std::map<int64_t, std::shared_ptr<const Event>>;
  std::vector<std::function<void(Queue& on, Marks& marks)>> all;
  int64_t marks = 0, put_beside = 0, joined_beside = 0;

  // Adds `one` on the queue that it was recorded on.
  void add(bool beside, const std::function<void(Queue& on, Marks& marks)>& one) {
    all.emplace_back([beside, one](Queue& on, Marks& known) { one(beside ? on.beside() : on, known); });
  }
  void run(Stream& stream) override {
    Marks known;
    for (const auto& one : all) one(Queue::of(stream), known);
  }
};

void Emulator::Queue::add(std::function<void()> one) {
  if (tape_) {
    tape_->put_beside += is_beside_;
    tape_->add(is_beside_, [one](Queue& on, Tape::Marks&) { on.add(one); });
    return;
  }
  work_->waiting.push_back(std::move(one));
  ++work_->put;
  const bool early = is_beside_ && on_.options_.early_copies;
  if (early || !on_.options_.lazy) work_->run_until(work_->put);
}

std::shared_ptr<const Event> Emulator::Queue::mark() {
  const auto mark = std::make_shared<Mark>();
  mark->work = work_;
  mark->at = work_->put;
  mark->on = &on_;
  if (!tape_) return mark;
  const int64_t number = mark->at = tape_->marks++;
  mark->tape = tape_.get();
  if (is_beside_) mark->puts_beside = tape_->put_beside;
  tape_->add(is_beside_, [number](Queue& on, Tape::Marks& marks) { marks[number] = on.mark(); });
  return mark;
}

void Emulator::Queue::wait(const Event& event) {
  const Mark& mark = dynamic_cast<const Mark&>(event);
  TENON_CHECK(Device, mark.tape == tape_.get(), kWhere)
      << "a point of a recording is waited for outside, or the reverse";
  if (tape_) {
    if (!is_beside_) tape_->joined_beside = std::max(tape_->joined_beside, mark.puts_beside);
    tape_->add(is_beside_, [number = mark.at](Queue& on, Tape::Marks& marks) { on.wait(*marks.at(number)); });
    return;
  }
  add([work = mark.work, at = mark.at, device = mark.on] {
    work->run_until(at);
    device->run_late();
  });
}

class Emulator::Kernel : public Function {
 public:
  Kernel(const KernelSource& source, const fs::path& object, Emulator& on)
      : name_(source.name), on_(on), library_(dlopen(object.c_str(), RTLD_NOW | RTLD_LOCAL), close) {
    TENON_CHECK(Device, library_ != nullptr, name_) << "cannot be loaded: " << dlerror();
    entry_ = reinterpret_cast<KernelEntry>(dlsym(library_.get(), "tenon_kernel"));
    facts_ = static_cast<const int*>(dlsym(library_.get(), "tenon_kernel_facts"));
    TENON_CHECK(Device, entry_ != nullptr && facts_ != nullptr, name_) << "defines no KERNEL";
  }

  void enqueue(Stream& stream, const CallShape& shape, std::span<const std::byte> params) override {
    TENON_CHECK(Device, static_cast<int>(params.size()) == facts_[1], name_)
        << "takes " << facts_[1] << " bytes of parameters, got " << params.size();
    TENON_CHECK(Device, shape.threads == facts_[0], name_)
        << "has " << facts_[0] << " threads in a block, called with " << shape.threads;
    TENON_CHECK(Device, shape.shared_bytes <= on_.facts_.shared_bytes, name_)
        << "wants " << shape.shared_bytes << " bytes of shared memory, there are " << on_.facts_.shared_bytes;
    TENON_CHECK(Device,
                shape.grid_x > 0 && shape.grid_y > 0 && shape.grid_z > 0 && shape.grid_y < 65536 &&
                    shape.grid_z < 65536 && shape.cluster >= 1 && shape.cluster <= 8 &&
                    shape.grid_x % shape.cluster == 0,
                name_)
        << "called with a grid that no device takes";
    const std::vector<std::byte> copy(params.begin(), params.end());
    Queue::of(stream).add([this, shape, copy] { put(shape, copy); });
  }

  KernelResources resources() override { return {}; }

 private:
  static void close(void* library) {
    if (library != nullptr) dlclose(library);
  }

  void put(const CallShape& shape, const std::vector<std::byte>& params) {
    const bool behind = std::exchange(on_.next_starts_, shape.starts_next);
    if (!shape.overlaps || (behind && shape.reads_early)) on_.run_late();
    // After a late kernel, one that lets its successor start before it has waited is late, too.
    if (on_.calls_++ == on_.options_.late || (on_.late_ && shape.starts_next))
      on_.late_ = [this, shape, params, in_front = on_.late_] {
        if (in_front) in_front();
        run(shape, params, true);
      };
    else
      run(shape, params, false);
  }

  void run(const CallShape& shape, const std::vector<std::byte>& params, bool late) const {
    struct alignas(64) Line {
      std::byte bytes[64];
    };
    std::vector<Line> aligned(params.size() / sizeof(Line) + 1);
    std::memcpy(aligned.data(), params.data(), params.size());
    const int64_t together = shape.waits_for_blocks ? shape.grid_x : shape.cluster;
    int64_t at[3];
    for (at[2] = 0; at[2] < shape.grid_z; ++at[2])
      for (at[1] = 0; at[1] < shape.grid_y; ++at[1])
        for (at[0] = 0; at[0] < shape.grid_x; at[0] += together) try {
            const std::function<void()> in_front = on_.late_ ? [this] { on_.run_late(); } : std::function<void()>();
            Block::run(shared_blocks(static_cast<unsigned>(together), late), entry_, aligned.data(), shape, at,
                       on_.options_.backwards, in_front);
          } catch (const std::string& what) {
            throw Error(ErrorKind::Device, name_, what);
          }
  }

  std::string name_;
  Emulator& on_;
  std::unique_ptr<void, void (*)(void*)> library_;
  KernelEntry entry_ = nullptr;
  const int* facts_ = nullptr;
};

Emulator::Emulator(EmulatorOptions options) : options_(std::move(options)) {
  const bool hopper = options_.arch != "sm_89";
  facts_ = {"this machine's processor", options_.arch,         options_.multiprocessors,
            hopper ? 232448 : 101376,   options_.memory_bytes, options_.argument_bytes};
  if (options_.batch_invariant) facts_.chosen_samples = kChosenSamples;
  facts_.one_order = options_.one_order;
}
Emulator::~Emulator() = default;

void Emulator::run_late() {
  if (const std::function<void()> late = std::exchange(late_, nullptr)) late();
}

std::shared_ptr<Function> Emulator::load(const KernelSource& source) {
  std::shared_ptr<Kernel>& kernel = kernels_[source.code];
  if (!kernel) kernel = std::make_shared<Kernel>(source, compile(source, options_), *this);
  return kernel;
}

std::shared_ptr<void> Emulator::allocate(int64_t bytes) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t used = (static_cast<size_t>(std::max<int64_t>(bytes, 1)) + 255) / 256 * 256;
  const size_t whole = (used + page - 1) / page * page + page;
  void* memory = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TENON_CHECK(Memory, memory != MAP_FAILED, kWhere) << "no memory for " << bytes << " bytes";
  auto* start = static_cast<unsigned char*>(memory);
  mprotect(start + whole - page, page, PROT_NONE);
  return {start + whole - page - used, [start, whole](void*) { munmap(start, whole); }};
}

std::shared_ptr<void> Emulator::allocate_pinned(int64_t bytes) {
  const std::shared_ptr<void> memory = Emulator::allocate(bytes);
  host_memory_->insert(memory.get());
  return {memory.get(), [memory, all = host_memory_](void* p) { all->erase(p); }};
}

void Emulator::fetch(Stream& stream, void* dst, const void* host, int64_t bytes) {
  TENON_CHECK(Device, host_memory_->contains(host), kWhere) << "fetches from memory that is not the host's";
  Queue::of(stream).add([dst, host, bytes] { std::memcpy(dst, host, static_cast<size_t>(bytes)); });
}

std::shared_ptr<Stream> Emulator::make_stream() { return std::make_shared<Queue>(*this, nullptr); }
bool Emulator::takes(const Stream& stream) const {
  const auto* const own = dynamic_cast<const Queue*>(&stream);
  return own && &own->emulator() == this;
}
std::shared_ptr<Stream> Emulator::borrow_stream(void*) { return make_stream(); }

void Emulator::copy_in(Stream& stream, void* dst, const void* src, int64_t bytes) {
  const auto* const from = static_cast<const std::byte*>(src);
  call(stream, {}, [dst, copy = std::vector<std::byte>(from, from + bytes)](void*) {
    if (!copy.empty()) std::memcpy(dst, copy.data(), copy.size());
  });
}
void Emulator::copy_out(Stream& stream, void* dst, const void* src, int64_t bytes) {
  stream.synchronize();
  if (bytes > 0) std::memcpy(dst, src, static_cast<size_t>(bytes));
}
void Emulator::copy(Stream& stream, void* dst, const void* src, int64_t bytes) {
  call(stream, {}, [dst, src, bytes](void*) { std::memcpy(dst, src, static_cast<size_t>(bytes)); });
}
void Emulator::fill_zero(Stream& stream, void* dst, int64_t bytes) {
  call(stream, {}, [dst, bytes](void*) { std::memset(dst, 0, static_cast<size_t>(bytes)); });
}

std::unique_ptr<Replay> Emulator::record(const std::function<void(Stream&)>& runs) {
  const auto tape = std::make_shared<Tape>();
  Queue recording(*this, tape);
  runs(recording);
  TENON_CHECK(Device, tape->joined_beside == tape->put_beside, kWhere)
      << "what was recorded beside a stream is not waited for";
  return std::make_unique<Tape>(*tape);
}

void Emulator::call(Stream& stream, const std::string&, const std::function<void(void* native)>& put) {
  Queue::of(stream).add([this, put] {
    run_late();
    put(nullptr);
  });
}

TensorMap Emulator::encode(const TensorBox& box) const {
  static_assert(sizeof(TensorBox) <= sizeof(TensorMap));
  const auto aligned = [](int64_t bytes) { return bytes % 16 == 0; };
  TENON_CHECK(Internal, box.rank >= 1 && box.rank <= 5, kWhere) << "a box of rank " << box.rank;
  TENON_CHECK(Internal, aligned(reinterpret_cast<intptr_t>(box.address)), kWhere) << "a box at an odd address";
  TENON_CHECK(Internal, aligned(int64_t{box.box[0]} * box.element_bytes), kWhere) << "box rows of odd size";
  TENON_CHECK(Internal, box.swizzle_bytes == 0 || box.box[0] * box.element_bytes <= box.swizzle_bytes, kWhere)
      << "box rows longer than the swizzle";
  for (int i = 0; i < box.rank; ++i)
    TENON_CHECK(Internal, (i == 0 || aligned(box.stride_bytes[i])) && box.box[i] >= 1 && box.box[i] <= 256, kWhere)
        << "dimension " << i << " of a box that no device takes";
  TensorMap map{};
  std::memcpy(&map, &box, sizeof(box));
  return map;
}

BlockStatistics& Emulator::statistics() { return shared_blocks(1)[0]->statistics; }

}  // namespace tenon::cuda::test
