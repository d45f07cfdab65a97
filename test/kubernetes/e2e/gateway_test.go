// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"
	v1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/conformance"
	confv1 "sigs.k8s.io/gateway-api/conformance/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/utils/config"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/yaml"

	"github.com/go-logr/logr"

	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/test/testenv"
	"github.com/jeoul/jeoul/internal/weigh/lab"
	"github.com/jeoul/jeoul/test/kubernetes/cluster"
	"github.com/jeoul/jeoul/test/kubernetes/dnsserver"
)

// gatewayTarget is the target in the Makefile that runs the conformance suite of the Gateway API.
const gatewayTarget = "test-gateway"

// The environment of the suite, which runs in a process of its own, on a client of the laboratory.
const (
	suiteKubeconfig = "JEOUL_SUITE_KUBECONFIG"
	suiteReport     = "JEOUL_SUITE_REPORT"
	suiteProfiles   = "JEOUL_SUITE_PROFILES"
)

const gatewayClass = "jeoul"

// profiles are the profiles whose tests must all succeed.
var profiles = []suite.ConformanceProfileName{suite.GatewayTCPConformanceProfileName,
	suite.GatewayUDPConformanceProfileName}

// TestGatewayConformance runs the conformance suite of the Gateway API on a cluster whose Gateways are outside of it.
// JEOUL_TEST_REPORT names a file that gets the report.
func TestGatewayConformance(t *testing.T) {
	testenv.Target(t, gatewayTarget)
	report, err := runSuite(t, profiles...)
	if err != nil {
		t.Errorf("the suite failed: %v", err)
	}
	checkReport(t, report)
}

// TestGatewayHTTP runs the suite's profile of HTTP, and logs how far the proxy carries it: it claims no conformance.
// JEOUL_TEST_REPORT names a file that gets the report.
func TestGatewayHTTP(t *testing.T) {
	testenv.Target(t, "test-gateway-http")
	report, _ := runSuite(t, suite.GatewayHTTPConformanceProfileName)
	for _, p := range report.ProfileReports {
		t.Logf("%s: %d core tests passed, failed %v, skipped %v", p.Name, p.Core.Statistics.Passed,
			p.Core.FailedTests, p.Core.SkippedTests)
	}
	if len(report.ProfileReports) != 1 {
		t.Errorf("the report has %d profiles; want 1", len(report.ProfileReports))
	}
}

// newGatewayCluster starts a cluster with the programs of the suite's pods, whose Gateways a balancer serves.
func newGatewayCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	testenv.Root(t)
	dns, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(t.Context(), cluster.Options{Nodes: 2, Clients: 1, Images: map[string][]string{
		"registry.k8s.io/gateway-api/echo-basic": {binary(t, "echo-basic")},
		"registry.k8s.io/coredns/coredns":        {dns, dnsserver.Role},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	installGatewayAPI(t, c)
	startGateways(t, c)
	to, _ := suiteClient(t, c.Kubeconfig, c.Lab.Balancer)
	testenv.Eventually(t, waitTimeout, "the class says what is supported", func() bool { // the suite reads it once
		var class v1.GatewayClass
		return to.Get(t.Context(), client.ObjectKey{Name: gatewayClass}, &class) == nil &&
			len(class.Status.SupportedFeatures) > 0
	})
	return c
}

// startGateways starts a balancer that serves Gateways: TCP and UDP by fullnat to pods, HTTP and HTTPS by the proxy.
func startGateways(t *testing.T, c *cluster.Cluster) *controller {
	t.Helper()
	b := startConfigured(t, c.Lab.Balancer, fields{"services": []fields{},
		"fullnat": fields{"addresses": []string{"198.18.0.240", "198.18.0.241"}}})
	certificates := b.path("certificates")
	if err := os.Mkdir(certificates, 0o755); err != nil {
		t.Fatal(err)
	}
	return startControllerBeside(t, c, b, "--gateways", "--routed-pods", "--mode", "fullnat", "--certificates",
		certificates)
}

// suiteClient returns a client for all objects that the suite has.
func suiteClient(t *testing.T, kubeconfig string, host *lab.Host) (client.Client, suite.ConformanceOptions) {
	t.Helper()
	reach, err := clientConfig(kubeconfig, host)
	if err != nil {
		t.Fatal(err)
	}
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), v1.Install(known),
		apiextensionsv1.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	options := client.Options{Scheme: known}
	made, err := client.New(reach, options)
	if err != nil {
		t.Fatal(err)
	}
	set, err := kubernetes.NewForConfig(reach)
	if err != nil {
		t.Fatal(err)
	}
	return made, suite.ConformanceOptions{Client: made, ClientOptions: options, Clientset: set, RestConfig: reach}
}

// clientConfig reads a kubeconfig; host is where connections come from, nil: the namespace of this process.
func clientConfig(kubeconfig string, host *lab.Host) (*rest.Config, error) {
	reach, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	if host != nil {
		reach.Dial = cluster.DialFrom(host)
	}
	reach.QPS, reach.Burst = 200, 400
	return reach, nil
}

// installGatewayAPI makes the kinds of the Gateway API, and a class of ours.
func installGatewayAPI(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	dir := os.Getenv("JEOUL_TEST_CRDS")
	files, _ := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if dir == "" || len(files) == 0 {
		t.Fatalf("there are no definitions in JEOUL_TEST_CRDS=%q; `make %s` sets it", dir, gatewayTarget)
	}
	to, _ := suiteClient(t, c.Kubeconfig, c.Lab.Balancer)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range bytes.Split(text, []byte("\n---\n")) {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(part, &object.Object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if len(object.Object) == 0 {
				continue
			}
			if err := to.Create(t.Context(), object); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		}
	}
	class := &v1.GatewayClass{Spec: v1.GatewayClassSpec{ControllerName: model.DefaultClass}}
	class.Name = gatewayClass
	testenv.Eventually(t, waitTimeout, "the API server takes a GatewayClass", func() bool {
		return to.Create(t.Context(), class.DeepCopy()) == nil
	})
}

// runSuite runs the suite's tests of profiles on a client of a cluster, and returns its report. An error means that a
// test failed.
func runSuite(t *testing.T, profiles ...suite.ConformanceProfileName) (report confv1.ConformanceReport, failed error) {
	t.Helper()
	c := newGatewayCluster(t)
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := os.Getenv("JEOUL_TEST_REPORT")
	if path == "" {
		path = filepath.Join(t.TempDir(), "report.yaml")
	}
	arguments := []string{"-test.run=^TestSuite$", "-test.v", "-test.timeout=40m"}
	process, err := c.Lab.Clients[0].Start(context.WithoutCancel(t.Context()),
		lab.Command{Path: executable, Args: arguments,
			Env: append(os.Environ(), suiteKubeconfig+"="+c.Kubeconfig, suiteReport+"="+path,
				suiteProfiles+"="+joinProfiles(profiles)), Stdout: os.Stdout, Stderr: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	failed = process.Wait()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	return report, failed
}

// joinProfiles and splitProfiles hand profiles over in the environment.
func joinProfiles(profiles []suite.ConformanceProfileName) string {
	var names []string
	for _, p := range profiles {
		names = append(names, string(p))
	}
	return strings.Join(names, ",")
}

func splitProfiles(text string) (profiles []suite.ConformanceProfileName) {
	for name := range strings.SplitSeq(text, ",") {
		profiles = append(profiles, suite.ConformanceProfileName(name))
	}
	return profiles
}

// TestSuite is the suite: runSuite starts it.
func TestSuite(t *testing.T) {
	kubeconfig := os.Getenv(suiteKubeconfig)
	if kubeconfig == "" {
		t.Skip("TestGatewayConformance and TestGatewayHTTP run it in a process of its own")
	}
	crlog.SetLogger(logr.Discard())
	_, options := suiteClient(t, kubeconfig, nil)
	options.GatewayClassName, options.ConformanceProfiles = gatewayClass, splitProfiles(os.Getenv(suiteProfiles))
	options.TimeoutConfig = config.DefaultTimeoutConfig()
	if slices.Contains(options.ConformanceProfiles, suite.GatewayHTTPConformanceProfileName) {
		shortenWaits(&options.TimeoutConfig)
	}
	options.TimeoutConfig.NamespacesMustBeReady = 10 * time.Minute // all pods of the suite run on one machine
	options.CleanupTestResources = true
	options.ReportOutputPath = os.Getenv(suiteReport)
	options.Implementation = confv1.Implementation{Organization: "jeoul", Project: "jeoul",
		URL:     "https://github.com/jeoul/jeoul",
		Version: "main", Contact: []string{"https://github.com/jeoul/jeoul/issues"}}
	options.ManifestFS = nil // the suite's own
	conformance.RunConformanceWithOptions(t, options)
}

// shortenWaits shortens the waits for conditions and for answers. Of the profile of HTTP, many tests fail by rules that
// the proxy does not support: with the suite's minutes for each, they would take most of an hour. What succeeds takes
// less than a second.
func shortenWaits(t *config.TimeoutConfig) {
	const atMost = 10 * time.Second
	for _, timeout := range []*time.Duration{&t.GatewayMustHaveAddress, &t.GatewayMustHaveCondition,
		&t.GatewayStatusMustHaveListeners, &t.GatewayListenersMustHaveConditions, &t.HTTPRouteMustNotHaveParents,
		&t.HTTPRouteMustHaveCondition, &t.RouteMustHaveParents, &t.MaxTimeToConsistency,
		&t.LatestObservedGenerationSet, &t.DefaultTestTimeout} {
		*timeout = min(*timeout, atMost)
	}
}

// checkReport fails unless all core tests of the profiles were run and succeeded.
func checkReport(t *testing.T, report confv1.ConformanceReport) {
	t.Helper()
	if len(report.ProfileReports) != len(profiles) {
		t.Errorf("the report has %d profiles; want %d", len(report.ProfileReports), len(profiles))
	}
	for _, p := range report.ProfileReports {
		t.Logf("%s: %s, %d core tests passed", p.Name, p.Core.Result, p.Core.Statistics.Passed)
		if p.Core.Result != confv1.Success || p.Core.Statistics.Skipped > 0 {
			t.Errorf("%s: %s; failed %v, skipped %v", p.Name, p.Core.Result, p.Core.FailedTests, p.Core.SkippedTests)
		}
	}
}
