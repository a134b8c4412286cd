#include "tenon/io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "tenon/core/error.h"

namespace tenon {

MappedFile MappedFile::open(const std::filesystem::path& path) {
  const std::string name = path.string();
  const auto reason = [] { return std::generic_category().message(errno); };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  TENON_CHECK(Model, fd >= 0, name) << "cannot open for reading: " << reason();
  struct stat info {};
  const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const size_t size = regular ? static_cast<size_t>(info.st_size) : 0;
  void* address = size > 0 ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0) : nullptr;
  const std::string refusal = address == MAP_FAILED ? reason() : "";
  close(fd);
  TENON_CHECK(Model, regular, name) << "expected a regular file";
  TENON_CHECK(Model, address != MAP_FAILED, name) << "cannot map the file: " << refusal;
  MappedFile out;
  out.owner_ = std::shared_ptr<const void>(address, [size](const void* a) {
    if (a) munmap(const_cast<void*>(a), size);
  });
  out.bytes_ = {static_cast<const std::byte*>(address), size};
  return out;
}

}  // namespace tenon
