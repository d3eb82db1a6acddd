/* Hands files of this process to other processes of the same user. They first try pidfd_getfd, but that needs the right to trace,
 * which most containers and some distributions withhold. So a thread answers at an abstract socket, with offered files only. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "file_server.h"
#include "weir_backend.h"

/* Older headers lack them. The numbers are the same on every architecture. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

enum { ANSWER_SECONDS = 10, QUESTION_SECONDS = 2 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned char *offered; /* by number */
static size_t offered_room;
static int server = -1;

int files_offer(int file) {
  int done = 1;
  pthread_mutex_lock(&mutex);
  if ((size_t)file >= offered_room) {
    size_t room = ((size_t)file + 1) * 2;
    unsigned char *grown = realloc(offered, room);
    done = grown != NULL;
    if (done) memset(grown + offered_room, 0, room - offered_room);
    if (done) offered = grown;
    if (done) offered_room = room;
  }
  if (done) offered[file] = 1;
  pthread_mutex_unlock(&mutex);
  return done;
}

void files_withdraw(int file) {
  pthread_mutex_lock(&mutex);
  if ((size_t)file < offered_room) offered[file] = 0;
  close(file);
  pthread_mutex_unlock(&mutex);
}

static socklen_t name_of(struct sockaddr_un *address, int64_t process, uint64_t mark) {
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  int length =
      snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "weir-%lld-%llx", (long long)process, (unsigned long long)mark);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static void limit_waiting(int socket, int seconds) {
  struct timeval limit = {.tv_sec = seconds};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

typedef union file_message {
  struct cmsghdr header;
  char bytes[CMSG_SPACE(sizeof(int))];
} file_message;

static void answer(int peer) {
  struct ucred who;
  socklen_t length = sizeof who;
  int32_t wanted;
  if (getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0 || (who.uid != geteuid() && who.uid != 0)) return;
  limit_waiting(peer, QUESTION_SECONDS);
  if (recv(peer, &wanted, sizeof wanted, 0) != sizeof wanted) return;
  char yes = 1;
  struct iovec word = {&yes, 1};
  file_message message = {0};
  struct msghdr said = {.msg_iov = &word, .msg_iovlen = 1, .msg_control = &message, .msg_controllen = sizeof message.bytes};
  message.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof wanted), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  memcpy(CMSG_DATA(&message.header), &wanted, sizeof wanted);
  /* Inside the lock the file stays open, so its number cannot mean another file. */
  pthread_mutex_lock(&mutex);
  if (wanted >= 0 && (size_t)wanted < offered_room && offered[wanted]) sendmsg(peer, &said, MSG_NOSIGNAL);
  pthread_mutex_unlock(&mutex);
}

static void *serve(void *context) {
  int socket = (int)(intptr_t)context;
  for (;;) {
    int peer = accept4(socket, NULL, NULL, SOCK_CLOEXEC);
    if (peer >= 0) {
      answer(peer);
      close(peer);
    } else if (errno == EBADF || errno == EINVAL) {
      return NULL;
    } else if (errno != EINTR && errno != ECONNABORTED) {
      usleep(10000);
    }
  }
}

void weir_serve_files(uint64_t mark) {
  pthread_mutex_lock(&mutex);
  int made = server >= 0 ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (made >= 0) {
    struct sockaddr_un address;
    socklen_t length = name_of(&address, getpid(), mark);
    pthread_t thread;
    sigset_t all, before;
    /* Signals are for the program's own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (bind(made, (struct sockaddr *)&address, length) == 0 && listen(made, 128) == 0 &&
        pthread_create(&thread, NULL, serve, (void *)(intptr_t)made) == 0) {
      pthread_detach(thread);
      server = made;
    } else {
      close(made);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
  }
  pthread_mutex_unlock(&mutex);
}

void weir_serve_files_forked(void) {
  pthread_mutex_init(&mutex, NULL);
  if (server >= 0) close(server);
  server = -1;
  if (offered) memset(offered, 0, offered_room);
}

static int ask(int64_t process, uint64_t mark, int32_t file) {
  struct sockaddr_un address;
  socklen_t length = name_of(&address, process, mark);
  int found = -1, peer = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (peer < 0) return -1;
  limit_waiting(peer, ANSWER_SECONDS);
  if (connect(peer, (struct sockaddr *)&address, length) == 0 && send(peer, &file, sizeof file, MSG_NOSIGNAL) == sizeof file) {
    char yes;
    struct iovec word = {&yes, 1};
    file_message message = {0};
    struct msghdr heard = {.msg_iov = &word, .msg_iovlen = 1, .msg_control = &message, .msg_controllen = sizeof message.bytes};
    if (recvmsg(peer, &heard, MSG_CMSG_CLOEXEC) == 1 && heard.msg_controllen >= CMSG_LEN(sizeof found) &&
        message.header.cmsg_type == SCM_RIGHTS) {
      memcpy(&found, CMSG_DATA(&message.header), sizeof found);
    }
  }
  close(peer);
  return found;
}

static int take(int64_t process, int file) {
  if (process == getpid()) return dup(file);
  int other = (int)syscall(SYS_pidfd_open, (pid_t)process, 0u);
  if (other < 0) return -1;
  int found = (int)syscall(SYS_pidfd_getfd, other, file, 0u);
  int failed = errno;
  close(other);
  errno = failed;
  return found;
}

int weir_fetch_file(int64_t process, uint64_t mark, int file, char *why, size_t room) {
  int found = take(process, file);
  if (found >= 0) return found;
  int failed = errno;
  if (failed == EPERM || failed == EACCES || failed == ENOSYS) {
    found = ask(process, mark, file);
    if (found >= 0) return found;
    snprintf(why, room,
             "the kernel does not let this process take memory from process %lld (%s), and that process does not answer: it has ended, "
             "or runs in another container",
             (long long)process, failed == ENOSYS ? "there is no pidfd_getfd here" : "that needs the right to trace it");
  } else if (failed == ESRCH || failed == EBADF) {
    snprintf(why, room, "process %lld, which sent it, has ended or has freed it", (long long)process);
  } else {
    snprintf(why, room, "a file of process %lld could not be had: %s", (long long)process, strerror(failed));
  }
  return -1;
}
