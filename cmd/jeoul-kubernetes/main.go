// SPDX-License-Identifier: Apache-2.0

// Command jeoul-kubernetes makes the balancer of its host serve Services of type LoadBalancer of a Kubernetes cluster.
// It is a separate program, so that the balancer has neither the memory nor the faults of a Kubernetes client.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"sigs.k8s.io/gateway-api/pkg/client/clientset/versioned"
	gatewayscheme "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/scheme"

	"github.com/jeoul/jeoul/internal/balancer/api"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/annotations"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/apiclock"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/controller"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/gateway"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/model"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/pools"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/push"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/rights"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/status"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/token"
	"github.com/jeoul/jeoul/internal/balancer/kubernetes/watch"
	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/host/httpserve"
)

// command is the command line.
type command struct {
	Kubeconfig string `name:"kubeconfig" env:"KUBECONFIG" placeholder:"FILE" help:"How the API server is reached, and as whom. Without it: as a pod's service account."`
	Socket     string `name:"socket" default:"${socket}" placeholder:"SOCKET" help:"Unix socket of the balancer (${default})."`
	Owner      string `name:"owner" default:"kubernetes" placeholder:"SOURCE" help:"The source of configuration that the services become (${default})."`

	Pools    string `name:"pools" placeholder:"FILE" xor:"pools" required:"" help:"File of the pools that addresses are taken from. It is read again when it changes."`
	PoolsMap string `name:"pools-configmap" placeholder:"NAMESPACE/NAME" xor:"pools" required:"" help:"ConfigMap that has the pools, under the key pools.yaml."`

	Class      string  `name:"class" default:"${class}" placeholder:"CLASS" help:"The loadBalancerClass that is served (${default})."`
	Classless  bool    `name:"classless" help:"Serve Services without a loadBalancerClass, too. No other controller may do so."`
	Mode       lb.Mode `name:"mode" enum:"${modes}" default:"l2dsr" placeholder:"MODE" help:"Mode of Services that ask for none: ${enum} (${default})."`
	RoutedPods bool    `name:"routed-pods" help:"This host reaches the addresses of pods: in the modes nat and fullnat they are the backends, rather than the nodes by NodePort."`
	Zone       string  `name:"zone" placeholder:"ZONE" help:"The balancer's zone: of endpoints with hints, those for this zone get new flows."`

	Gateways     bool   `name:"gateways" help:"Serve Gateways of the Gateway API, too: those of a GatewayClass whose controllerName is the CLASS."`
	Certificates string `name:"certificates" placeholder:"DIR" help:"Directory that certificates of HTTPS listeners are written to, for the balancer to read. Without it such listeners are refused."`

	LeaseNamespace string `name:"lease-namespace" default:"jeoul-system" placeholder:"NAMESPACE" help:"Namespace of the Lease by which one of several balancers writes status (${default})."`
	Identity       string `name:"identity" placeholder:"NAME" help:"This balancer's name in the Lease, which no other has (the host's name)."`
	Listen         string `name:"listen" placeholder:"ADDRESS:PORT" help:"Answer /healthz and /readyz over HTTP there, with the age of the known state of the cluster."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "jeoul-kubernetes: %v\n", err)
		os.Exit(1)
	}
}

// run runs one command line.
func run(ctx context.Context, args []string) error {
	c := &command{}
	modes := make([]string, len(annotations.Modes))
	for i, m := range annotations.Modes {
		modes[i] = string(m)
	}
	parser, err := kong.New(c, kong.Name("jeoul-kubernetes"),
		kong.Description("Serve Services of type LoadBalancer of a Kubernetes cluster by the balancer of this host."),
		kong.Vars{"socket": config.DefaultSocket, "class": model.DefaultClass, "modes": strings.Join(modes, ",")})
	if err != nil {
		return err
	}
	if _, err := parser.Parse(args); err != nil {
		return err
	}
	return c.run(ctx)
}

// run follows the cluster until the context ends.
func (c *command) run(ctx context.Context) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	klog.SetSlogLogger(log.With("by", "client-go"))
	if err := config.CheckFragmentName(c.Owner); err != nil {
		return fmt.Errorf("--owner: %w", err)
	}
	reach, err := c.restConfig()
	if err != nil {
		return err
	}
	clock := &apiclock.Clock{}
	reach.Wrap(clock.Wrap)
	client, err := kubernetes.NewForConfig(useProtobuf(reach))
	if err != nil {
		return err
	}
	gateways, err := versioned.NewForConfig(reach)
	if err != nil {
		return err
	}
	options, err := c.options(client, log)
	if err != nil {
		return err
	}
	if err := c.followGateways(&options, gateways); err != nil {
		return err
	}
	known, err := eventScheme()
	if err != nil {
		return err
	}
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return err
	}
	defer broadcaster.Shutdown()
	recorder := broadcaster.NewRecorder(known, model.FieldManager)
	options.Writer = &status.Writer{Client: client, Class: c.Class, Gateways: gateways, Recorder: recorder}
	options.Recorder, options.Lease.Recorder = recorder, recorder
	options.Skew = clock.Skew
	options.Follows = "the Kubernetes cluster at " + reach.Host
	control := controller.New(options)
	if err := c.serve(ctx, control, log); err != nil {
		return err
	}
	return control.Run(ctx)
}

// The rate of client-go's requests to an API server: a cold start writes the status of thousands of Services.
const (
	queriesPerSecond = 100
	burst            = 200
)

// eventScheme returns the kinds of objects that Events are about.
func eventScheme() (*runtime.Scheme, error) {
	known := runtime.NewScheme()
	return known, errors.Join(scheme.AddToScheme(known), gatewayscheme.AddToScheme(known))
}

// followGateways makes the controller serve Gateways, if the flags ask for that.
func (c *command) followGateways(options *controller.Options, gateways versioned.Interface) error {
	if !c.Gateways {
		if c.Certificates != "" {
			return errors.New("--certificates is for the listeners of Gateways; add --gateways")
		}
		return nil
	}
	if c.Certificates != "" && !filepath.IsAbs(c.Certificates) {
		return fmt.Errorf("--certificates: %q is no absolute path, which the balancer needs", c.Certificates)
	}
	options.Gateways = &gateway.Settings{Controller: c.Class, Certificates: c.Certificates}
	if c.Mode.Translates() {
		options.Gateways.Mode = c.Mode
	}
	return options.Watcher.FollowGateways(options.Client, gateways, c.Certificates != "")
}

// restConfig returns the configuration by which clients reach the API server. It does not connect to the server.
func (c *command) restConfig() (*rest.Config, error) {
	var reach *rest.Config
	var err error
	if c.Kubeconfig != "" {
		reach, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	} else {
		reach, err = rest.InClusterConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w; name a file with --kubeconfig", err)
	}
	if c.Kubeconfig != "" {
		token.Follow(reach, c.Kubeconfig)
	}
	reach.QPS, reach.Burst, reach.UserAgent = queriesPerSecond, burst, "jeoul-kubernetes"
	return reach, nil
}

// useProtobuf returns a configuration that reads objects of Kubernetes' own kinds as protobuf, as Kubernetes' own
// controllers do; objects of the Gateway API exist only as JSON.
func useProtobuf(reach *rest.Config) *rest.Config {
	reach = rest.CopyConfig(reach)
	reach.ContentType = runtime.ContentTypeProtobuf
	reach.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return reach
}

// options returns the controller's options without the writer of the status.
func (c *command) options(client kubernetes.Interface, log *slog.Logger) (controller.Options, error) {
	watcher, err := watch.New(client, c.PoolsMap)
	if err != nil {
		return controller.Options{}, err
	}
	identity := c.Identity
	if identity == "" {
		if identity, err = os.Hostname(); err != nil {
			return controller.Options{},
				fmt.Errorf("this balancer's name in the Lease: %w; give it one with --identity", err)
		}
	}
	balancer := api.NewClient(c.Socket)
	options := controller.Options{Client: client, Watcher: watcher, Log: log,
		Settings: model.Settings{Class: c.Class, Classless: c.Classless, Mode: c.Mode, RoutedPods: c.RoutedPods,
			Zone: c.Zone},
		Pusher: &push.Pusher{Balancer: balancer, Source: c.Owner},
		Generation: func(ctx context.Context, source string) (uint64, error) {
			return generation(ctx, balancer, source)
		},
		Report: balancer.Report,
		Rights: func(ctx context.Context) ([]rights.Right, error) {
			return rights.Missing(ctx, client, c.neededRights())
		},
		Unreached: func(ctx context.Context) ([]ops.ServiceBackend, error) {
			return balancer.BackendsIn(ctx, lb.NoRoute)
		},
		Lease: status.Lease{Namespace: c.LeaseNamespace, Identity: identity, Name: c.leaseName()}}
	if c.Pools != "" {
		options.Pools = func() ([]pools.Pool, error) { return readPools(c.Pools) }
		if _, err := options.Pools(); err != nil {
			return options, err
		}
	} else if namespace, name, found := strings.Cut(c.PoolsMap, "/"); !found || namespace == "" || name == "" {
		return options, fmt.Errorf("--pools-configmap: %q is not NAMESPACE/NAME", c.PoolsMap)
	}
	return options, nil
}

// neededRights returns the rights that the account needs.
func (c *command) neededRights() rights.Needed {
	namespace, _, _ := strings.Cut(c.PoolsMap, "/")
	return rights.Needed{LeaseNamespace: c.LeaseNamespace, Lease: c.leaseName(), PoolsNamespace: namespace,
		Gateways: c.Gateways, Certificates: c.Certificates != ""}
}

// leaseName returns the name of the Lease of a class.
func (c *command) leaseName() string {
	return "jeoul-" + strings.Trim(strings.Map(leaseRune, strings.ToLower(c.Class)), "-.")
}

// leaseRune returns a letter of a class in the form that the name of a Lease allows.
func leaseRune(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
		return r
	}
	return '-'
}

func readPools(path string) ([]pools.Pool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the pools: %w", err)
	}
	return pools.Parse(path, text)
}

// generation returns the generation of a source; 0 if the balancer has no such source.
func generation(ctx context.Context, balancer *api.Client, source string) (uint64, error) {
	list, err := balancer.Sources(ctx)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(list, func(s api.Source) bool { return s.Name == source })
	if i < 0 {
		return 0, nil
	}
	return list[i].Generation, nil
}

// serve serves the state of the controller, if the flags ask for that.
func (c *command) serve(ctx context.Context, control *controller.Controller, log *slog.Logger) error {
	if c.Listen == "" {
		return nil
	}
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	server := &http.Server{Handler: control.Handler(), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		if err := httpserve.Until(ctx, server, listener, time.Second); err != nil {
			log.Error("health is not answered any more", "err", err)
		}
	}()
	return nil
}
