// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of reaching a machine.
const (
	// connectSeconds is how long TCP and the SSH handshake may take.
	connectSeconds = 10
	// aliveSeconds times aliveCount is how long a dead connection may go unnoticed.
	aliveSeconds = 5
	aliveCount   = 3
	// scpTimeout is how long copying jeoul, some 40 MB, may take.
	scpTimeout = 5 * time.Minute
)

// sshCommand returns the command line that runs a command on the host, as root.
func sshCommand(h Host, command string) []string {
	args := []string{"ssh", "-T", "-o", "BatchMode=yes",
		"-o", "ConnectTimeout=" + strconv.Itoa(connectSeconds),
		"-o", "ServerAliveInterval=" + strconv.Itoa(aliveSeconds), "-o", "ServerAliveCountMax=" +
			strconv.Itoa(aliveCount)}
	if h.Port != 0 {
		args = append(args, "-p", strconv.Itoa(h.Port))
	}
	if h.User != "" {
		args = append(args, "-l", h.User)
	}
	if h.Key != "" {
		args = append(args, "-i", h.Key, "-o", "IdentitiesOnly=yes")
	}
	args = append(args, h.Options...)
	if h.Become {
		command = "sudo -n " + command
	}
	return append(args, "--", h.Address, command)
}

// machines are the names of architectures in uname(1).
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64", "riscv64": "riscv64", "s390x": "s390x",
	"ppc64le": "ppc64le"}

// installScript writes its input into a new directory as jeoul. Its exit statuses distinguish failures for which ssh's
// own status is 255.
const installScript = `set -e; umask 022
[ "$(id -u)" = 0 ] || { echo "the user is not root there: use another ansible_user, or ansible_become" >&2; exit 3; }
[ "$(uname -sm)" = "Linux %[1]s" ] || { echo "it is a $(uname -sm), and this jeoul is for Linux %[1]s" >&2; exit 3; }
mkdir %[2]s
cat >%[2]s/jeoul
chmod 755 %[2]s/jeoul`

// install copies this jeoul to a directory on the host, which must not exist yet.
func install(ctx context.Context, h Host, executable, dir string) error {
	file, err := os.Open(executable)
	if err != nil {
		return fmt.Errorf("opening this program's own file: %w", err)
	}
	defer file.Close()
	ctx, cancel := context.WithTimeout(ctx, scpTimeout)
	defer cancel()
	script := fmt.Sprintf(installScript, machines[runtime.GOARCH], dir)
	return runSSH(ctx, h, "sh -c "+quote(script), file)
}

// uninstall removes the files that install has left; a worker that was running did so itself.
func uninstall(h Host, dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*connectSeconds*time.Second)
	defer cancel()
	return runSSH(ctx, h, "rm -rf "+quote(dir), nil)
}

// runSSH runs a command on the host to its end.
func runSSH(ctx context.Context, h Host, command string, stdin *os.File) error {
	line := sshCommand(h, command)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	if stdin != nil {
		cmd.Stdin = stdin
	}
	var output bytes.Buffer
	cmd.Stderr = &output
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	return sshError(ctx, err, output.String())
}

// sshError returns an error with the reason why ssh, or the command that it ran, has failed.
func sshError(ctx context.Context, err error, output string) error {
	words := lastOutput(output)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("it took too long, and was given up%s", behind("; ssh reports: ", words))
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		return errors.New("ssh is not installed here: install it from your distribution (Debian: openssh-client)")
	case errors.As(err, &exit) && exit.ExitCode() == 255:
		return fmt.Errorf("SSH does not get there: %s%s", strings.TrimSuffix(words, "."), advice(words))
	case errors.Is(err, unix.ENOENT):
		return err
	}
	return fmt.Errorf("%s%s", words, behind(" (", err.Error()+")"))
}

// advice names the remedy for the most frequent errors of ssh.
func advice(words string) string {
	for sign, what := range map[string]string{
		"Permission denied":            "; give the right ansible_user and ansible_ssh_private_key_file, or load the key into ssh-agent",
		"Host key verification failed": "; connect once by hand and check the machine's key, or add it to known_hosts",
		"timed out":                    "; is the machine up, and its address and port right?",
		"Connection refused":           "; does sshd run there, at that port?",
		"No route to host":             "; is the machine up, and its address right?",
		"Could not resolve":            "; give ansible_host",
	} {
		if strings.Contains(words, sign) {
			return what
		}
	}
	return ""
}

// lastOutput returns the last lines of a program's output, as one line.
func lastOutput(output string) string {
	const most = 400
	words := strings.Join(strings.Fields(strings.ToValidUTF8(output, "")), " ")
	if len(words) > most {
		words = "…" + strings.ToValidUTF8(words[len(words)-most:], "")
	}
	return words
}

// behind returns text after a prefix, and nothing without text.
func behind(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// quote quotes text as one word for a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
