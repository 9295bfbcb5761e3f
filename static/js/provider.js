// Back from the provider of single sign-on: the form goes on by itself, with the secret that proof.js adds to it.
document.querySelector("form[data-go]")?.requestSubmit();
