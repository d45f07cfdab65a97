// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bytes"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject"
	"github.com/jeoul/jeoul/internal/weigh/bench/subject/subjecttest"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestProxyConfigs(t *testing.T) {
	haproxy := func(setup subject.Setup) haproxyValues {
		values := haproxyValuesOf(setup, 2, 9750, 2)
		values.Splice, values.Socket = true, "/tmp/jeoul-lab-1a2b/balancer/haproxy.sock"
		return values
	}
	const dir = "/tmp/jeoul-lab-1a2b/balancer"
	subjecttest.CheckConfigs(t, map[string]subjecttest.Filled{
		"haproxy.cfg":    {Config: haproxyConfig, Values: haproxy(subjecttest.Paper())},
		"haproxytcp.cfg": {Config: haproxyTCPConfig, Values: haproxy(subjecttest.BulkPaper())},
		"nginx-stream.conf": {Config: nginxStreamConfig,
			Values: nginxStreamValues{Module: "/usr/lib/nginx/modules/ngx_stream_module.so", Dir: dir,
				Threads: 2, OpenFiles: 20_000, WorkerConnections: 19_800,
				Services: proxyServices(subjecttest.BulkPaper())}},
		"nginx-http.conf": {Config: nginxHTTPConfig, Values: nginxHTTPValues{Dir: dir, Threads: 2, OpenFiles: 20_000,
			WorkerConnections: 19_800,
			Services:          proxyServices(subjecttest.Paper())}},
		"envoy.yaml": {Config: envoyConfig,
			Values: envoyValues{MaxConnections: 9750, Services: proxyServices(subjecttest.ChangedPaper())}},
	})
}

func TestHAProxyAcceptsItsConfigs(t *testing.T) {
	program := testenv.Program(t, "haproxy")
	for _, name := range []string{"haproxy.cfg", "haproxytcp.cfg"} {
		output, err := exec.Command(program, "-c", "-f", filepath.Join("testdata", name)).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", name, err, output)
		}
		if bytes.Contains(output, []byte("WARNING")) {
			t.Errorf("%s: it warns: %s", name, output)
		}
	}
}

func TestChangedConfigs(t *testing.T) {
	setup := subjecttest.ChangedPaper()
	haproxy := haproxyValuesOf(setup, 2, 9750, 2)
	haproxy.Socket = "/tmp/haproxy.sock"
	subjecttest.CheckConfigs(t, map[string]subjecttest.Filled{
		"haproxytcp-changed.cfg": {Config: haproxyTCPConfig, Values: haproxy},
		"nginx-stream-changed.conf": {Config: nginxStreamConfig,
			Values: nginxStreamValues{Dir: "/tmp", Threads: 2, OpenFiles: 20_000, WorkerConnections: 19_800,
				Services: proxyServices(setup)}},
	})
}

func TestCheckedConfigs(t *testing.T) {
	haproxy := haproxyValuesOf(subjecttest.CheckedPaper(), 2, 9750, 2)
	haproxy.Socket = "/tmp/haproxy.sock"
	subjecttest.CheckConfigs(t, map[string]subjecttest.Filled{
		"haproxytcp-checked.cfg": {Config: haproxyTCPConfig, Values: haproxy},
	})
}

// TestHAProxyShowsWhoRuns reads HAProxy 2.6's table of its servers' states.
func TestHAProxyShowsWhoRuns(t *testing.T) {
	servers := "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight\n" +
		"2 service0 1 web01 198.18.2.1 2 0 1\n2 service0 2 web02 198.18.2.2 0 0 1\n" +
		"3 service1 1 web01 198.18.2.1 2 0 1\n3 service1 2 web02 198.18.2.2 0 0 1\n3 service1 3 web03 198.18.2.3 2 0 1\n2 service0 3 web03 198.18.2.3 0 0 1\n"
	for server, want := range map[string]struct{ runs, fails bool }{
		"web01": {true, false}, "web02": {false, false}, "web03": {false, true}, "web04": {false, true},
	} {
		if got, err := haproxyRuns(servers, server); got != want.runs || (err != nil) != want.fails {
			t.Errorf("%s: runs %t, %v", server, got, err)
		}
	}
}
