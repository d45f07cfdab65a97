// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"crypto/x509/pkix"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/jeoul/jeoul/internal/test/testcert"
)

// httpsListener is a listener at port 443 with the certificate of httpsSecret.
func httpsListener() v1.Listener {
	l := listenerOf("https", v1.HTTPSProtocolType, 443)
	l.TLS = &v1.ListenerTLSConfig{CertificateRefs: []v1.SecretObjectReference{{Name: "server"}}}
	return l
}

func httpsSecret(t *testing.T) *corev1.Secret {
	t.Helper()
	certificate, key := filepath.Join(t.TempDir(), "certificate"), filepath.Join(t.TempDir(), "key")
	testcert.NewAuthority(t).Write(t, pkix.Name{}, time.Hour, certificate, key)
	s := &corev1.Secret{ObjectMeta: meta("infra", "server"), Data: map[string][]byte{}}
	for name, path := range map[string]string{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s.Data[name] = text
	}
	return s
}

// TestClientValidation: a listener whose clients must present certificates is refused, because clients without one
// would be served.
func TestClientValidation(t *testing.T) {
	secrets := []*corev1.Secret{httpsSecret(t)}
	var none v1.TLSConfig
	validated := v1.TLSConfig{Validation: &v1.FrontendTLSValidation{
		CACertificateRefs: []v1.ObjectReference{{Kind: "ConfigMap", Name: "clients"}}}}
	at := func(port v1.PortNumber, c v1.TLSConfig) []v1.TLSPortConfig {
		return []v1.TLSPortConfig{{Port: port, TLS: c}}
	}
	for name, test := range map[string]struct {
		tls    v1.FrontendTLSConfig
		served bool
	}{
		"not validated":             {v1.FrontendTLSConfig{}, true},
		"by default":                {v1.FrontendTLSConfig{Default: validated}, false},
		"except at its port":        {v1.FrontendTLSConfig{Default: validated, PerPort: at(443, none)}, true},
		"except at another port":    {v1.FrontendTLSConfig{Default: validated, PerPort: at(8443, none)}, false},
		"at its port":               {v1.FrontendTLSConfig{PerPort: at(443, validated)}, false},
		"at another port than this": {v1.FrontendTLSConfig{PerPort: at(8443, validated)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := gatewayOf("gw", httpsListener())
			g.Spec.TLS = &v1.GatewayTLSConfig{Frontend: &test.tls}
			services, report := built(t, Objects{Gateways: []*v1.Gateway{g}, Secrets: secrets})
			status, reason := metav1.ConditionTrue, "Accepted"
			if !test.served {
				status, reason = metav1.ConditionFalse, "UnsupportedValue"
			}
			l := report.Gateways[0].Status.Listeners[0]
			expectCondition(t, l.Conditions, "Accepted", status, reason)
			expectCondition(t, l.Conditions, "Programmed", status, "")
			if (len(services) == 1) != test.served {
				t.Errorf("the services are %+v", services)
			}
		})
	}
}
