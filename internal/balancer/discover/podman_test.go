// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/test/testenv"
)

// inContainer is set where a container runs this test's program.
const inContainer = "JEOUL_TEST_IN_CONTAINER"

func init() {
	if os.Getenv(inContainer) != "" {
		_ = unix.Pause() // until a signal ends it
	}
}

// podmanScript serves Podman's API from namespaces of its own, with all that it keeps in a folder. Its
// runtime takes no machine that has both versions of control groups.
const podmanScript = `set -e
mount -t tmpfs none /run
umount /sys/fs/cgroup/unified 2>/dev/null || true
mkdir -p /run/cni /var/lib/cni
mount -t tmpfs none /var/lib/cni
ip link set lo up
printf '[containers]\ncgroups="disabled"\n' >"$DIR/containers.conf"
export CONTAINERS_CONF="$DIR/containers.conf"
set -- --root "$DIR/root" --runroot "$DIR/run" --tmpdir "$DIR/tmp" --storage-driver vfs --cgroup-manager cgroupfs --events-backend file
podman "$@" import "$DIR/image.tar" web
for name in w1 w2; do
	podman "$@" create --name $name --env ` + inContainer + `=1 --label jeoul.service=web --label jeoul.port=8080 --label jeoul.weight=2 web /program
done
exec podman "$@" system service --time=0 "unix://$DIR/api.sock"
`

// podman is a Podman that was started for a test.
type podman struct {
	socket string
	client *http.Client
}

// newPodman starts one with two containers, or skips the test with the reason.
func newPodman(t *testing.T) *podman {
	t.Helper()
	if os.Getenv("JEOUL_TEST_PODMAN") == "" {
		t.Skip("`make test-discovery` has a Podman started")
	}
	testenv.Root(t)
	if _, err := exec.LookPath("podman"); err != nil {
		t.Skipf("install podman: %v", err)
	}
	dir := t.TempDir()
	writeImage(t, filepath.Join(dir, "image.tar"))
	var log bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "unshare", "--net", "--mount", "--pid", "--fork",
		"--mount-proc", "--kill-child", "sh", "-c", podmanScript)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), "DIR="+dir), &log, &log
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-ended
	})
	p := &podman{socket: filepath.Join(dir, "api.sock")}
	p.client = &http.Client{Timeout: time.Minute,
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", p.socket)
		}}}
	bound := time.After(testenv.WaitLimit)
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		select {
		case err := <-ended:
			ended <- err
			t.Skipf("Podman does not run here: %v\n%s", err, log.String())
		case <-bound:
			t.Skipf("Podman does not answer here:\n%s", log.String())
		case <-tick.C:
		}
		if conn, err := net.Dial("unix", p.socket); err == nil {
			conn.Close()
			return p
		}
	}
}

// writeImage writes an image whose one file is this test's program.
func writeImage(t *testing.T, path string) {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(executable)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	image := tar.NewWriter(file)
	err = image.WriteHeader(&tar.Header{Name: "program", Mode: 0o755, Size: int64(len(program))})
	if err == nil {
		_, err = image.Write(program)
	}
	if err = errors.Join(err, image.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
}

// command has something done with a container.
func (p *podman) command(t *testing.T, what string) error {
	t.Helper()
	response, err := p.client.Post("http://podman/containers/"+what, "", nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= 300 {
		err = fmt.Errorf("status %d: %s", response.StatusCode, text)
	}
	return err
}

// TestPodman: containers of a real engine come and go.
func TestPodman(t *testing.T) {
	p := newPodman(t)
	c := newContainers(lb.Service{VIP: netip.MustParseAddr("192.0.2.100"), Mode: lb.NAT,
		Discovery: lb.Discovery{Docker: lb.DockerOrigin{Socket: p.socket}}})
	answers := follow(t, c)
	expect(t, answers, "")
	if err := p.command(t, "w1/start"); err != nil {
		t.Skipf("Podman starts no container here: %v", err)
	}
	expect(t, answers, "w1")
	if err := p.command(t, "w2/start"); err != nil {
		t.Fatal(err)
	}
	bound := time.After(testenv.WaitLimit)
	for found := false; !found; {
		select {
		case a := <-answers:
			if found = len(a.Found) == 2; found {
				for _, f := range a.Found {
					if f.Port != 8080 || f.Weight != 2 || f.Service != "web" ||
						!strings.HasPrefix(f.Address.String(), "10.") {
						t.Errorf("found %+v", f)
					}
				}
			}
		case <-bound:
			t.Fatal("w2 does not come")
		}
	}
	if err := p.command(t, "w1/stop?t=0"); err != nil {
		t.Fatal(err)
	}
	expect(t, answers, "w2")
	if err := p.command(t, "w1/start"); err != nil {
		t.Fatal(err)
	}
	expect(t, answers, "w1 w2")
	if err := p.command(t, "w2/pause"); err != nil {
		t.Logf("Podman pauses no container here: %v", err)
	}
	if err := p.command(t, "w2/kill"); err != nil {
		t.Fatal(err)
	}
	expect(t, answers, "w1")
}
