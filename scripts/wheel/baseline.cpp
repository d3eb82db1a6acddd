// Functions that compilers and libraries of today take from libraries newer than the oldest system that a wheel is for.
// Each is built on its older form. Only adapters for wheels are linked with this file.
#include <new>
#include <sstream>

#if __cplusplus >= 202002L
#error "this file is C++17"
#endif
#if !defined(__x86_64__)
#error "the versions of these symbols are those of x86_64"
#endif

struct stat;

#define OURS extern "C" __attribute__((visibility("hidden")))
/** A function of ours that takes the place of `name`, and its older form under the name old_... */
#define REPLACE(alias, name, version, result, parameters, arguments) \
  extern "C" result old_##alias parameters;                          \
  __asm__(".symver old_" #alias "," name "@" version);               \
  OURS result new_##alias parameters __asm__(name);                  \
  result new_##alias parameters { return old_##alias arguments; }

// glibc 2.34 moved these into libc.so.6.
REPLACE(dlopen, "dlopen", "GLIBC_2.2.5", void *, (const char *file, int mode), (file, mode))
REPLACE(dlsym, "dlsym", "GLIBC_2.2.5", void *, (void *library, const char *name), (library, name))
REPLACE(dladdr, "dladdr", "GLIBC_2.2.5", int, (const void *address, void *found), (address, found))
REPLACE(create, "pthread_create", "GLIBC_2.2.5", int, (void *thread, const void *how, void *(*start)(void *), void *with),
        (thread, how, start, with))
REPLACE(detach, "pthread_detach", "GLIBC_2.2.5", int, (unsigned long thread), (thread))
REPLACE(once, "pthread_once", "GLIBC_2.2.5", int, (int *control, void (*start)()), (control, start))
REPLACE(sigmask, "pthread_sigmask", "GLIBC_2.2.5", int, (int how, const void *set, void *before), (how, set, before))

// libstdc++ 12 says that it does not throw. The older one is the same otherwise.
REPLACE(wait, "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE", "GLIBCXX_3.4.11", void, (void *self, void *lock), (self, lock))

// Before glibc 2.33 there was only this one; 1 is the layout of struct stat.
extern "C" int __fxstat(int layout, int file, struct stat *found);
OURS int new_fstat(int file, struct stat *found) __asm__("fstat");
int new_fstat(int file, struct stat *found) { return __fxstat(1, file, found); }

// glibc 2.32 has it so that counters need not be atomic in a process with one thread. PyTorch's have many.
OURS char single_threaded __asm__("__libc_single_threaded");
char single_threaded = 0;

OURS void bad_array_new_length() __asm__("_ZSt28__throw_bad_array_new_lengthv");
void bad_array_new_length() { throw std::bad_array_new_length(); }

// Names of symbols as compilers write them; the strings of GCC 5 and later are in a namespace of their own.
#if _GLIBCXX_USE_CXX11_ABI
#define STD "St7__cxx11"
#else
#define STD "St"
#endif
OURS void ostringstream(void *self) __asm__("_ZN" STD "19basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev");
void ostringstream(void *self) { new (self) std::ostringstream(std::ios_base::out); }

// C++20 has one function for temporary objects, which are left empty, and one for others. This file is C++17, which has one for both.
OURS std::string stringbuf_str(const std::stringbuf *self) __asm__("_ZNKR" STD "15basic_stringbufIcSt11char_traitsIcESaIcEE3strEv");
std::string stringbuf_str(const std::stringbuf *self) { return self->str(); }
OURS std::string stringbuf_take(std::stringbuf *self) __asm__("_ZNO" STD "15basic_stringbufIcSt11char_traitsIcESaIcEE3strEv");
std::string stringbuf_take(std::stringbuf *self) {
  std::string text = self->str();
  self->str(std::string());
  return text;
}
